"""NVIDIA GPUs through NVML: the energy counter where there is one, else power, polled.

The counter (Volta and later) counts millijoules of the whole board since the driver was loaded.
Where it is missing, `nvmlDeviceGetPowerUsage` is polled. Needs the package nvidia-ml-py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import inf
from typing import Any

from tilewright.hardware.meters.base import Meter, MeterLost, NullMeter, no_meter
from tilewright.hardware.meters.counting import CountingMeter
from tilewright.hardware.meters.polling import PollingMeter

_UPDATE_S = 0.1
"""Taken for both: drivers bring them up to date every 20 to 100 ms."""
_MILLI = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU: `library` is nvidia-ml-py's module, `handle` what it calls the GPU by."""

    library: Any
    handle: Any
    range_j: float = inf

    def read_j(self) -> float:
        """Joules since the driver was loaded; raises MeterLost."""
        return self._ask("nvmlDeviceGetTotalEnergyConsumption") * _MILLI

    def read_w(self) -> float:
        """Watts of the board; raises MeterLost."""
        return self._ask("nvmlDeviceGetPowerUsage") * _MILLI

    def _ask(self, function: str) -> float:
        try:
            return float(getattr(self.library, function)(self.handle))
        except self.library.NVMLError as error:
            raise MeterLost(f"{function}: {error}.") from None


def nvml_meter(
    index: int = 0, library: Any = None, clock: Callable[[], float] = time.monotonic
) -> Meter:
    """A meter of one GPU; a null meter where NVML, the driver or the GPU is missing.

    `library` is nvidia-ml-py's module, imported when it is not given.
    """
    if library is None:
        if find_spec("pynvml") is None:
            return no_meter(
                "The Python package nvidia-ml-py is not installed.",
                "pip install 'tilewright[nvml]' adds it.",
            )
        library = import_module("pynvml")
    try:
        library.nvmlInit()
        gpu = Gpu(library=library, handle=library.nvmlDeviceGetHandleByIndex(index))
        name = library.nvmlDeviceGetName(gpu.handle)
    except library.NVMLError as error:
        return no_meter(f"NVML gives no GPU {index}: {error}.")
    counting = CountingMeter(
        method=f"nvml: energy counter of {name}",
        update_s=_UPDATE_S,
        counters=(gpu,),
        clock=clock,
    )
    if counting.unavailable() is None:
        return counting
    polling = PollingMeter(
        method=f"nvml: power of {name}, polled",
        update_s=_UPDATE_S,
        power_w=gpu.read_w,
        clock=clock,
    )
    lost = polling.unavailable()
    return polling if lost is None else NullMeter(lost=lost)
