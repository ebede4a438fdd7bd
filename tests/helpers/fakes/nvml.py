"""A made-up NVML, and a clock that stands still until it is told otherwise."""

from __future__ import annotations


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeNvml:
    """As nvidia-ml-py: functions that raise NVMLError."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, gpus: int = 1, counter: bool = True) -> None:
        self.gpus, self.counter = gpus, counter
        self.millijoules, self.milliwatts = 1_000_000, 150_000

    def nvmlInit(self) -> None:
        if self.gpus < 0:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.gpus:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"GPU {handle}"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if not self.counter:
            raise self.NVMLError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if self.milliwatts < 0:
            raise self.NVMLError("GPU is lost")
        return self.milliwatts
