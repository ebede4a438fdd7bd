"""The child process that runs prepared kernels: on the first GPU of the machine, or, simulated, on
the CPU. It needs neither TVM nor a compiler."""

from __future__ import annotations

from functools import cache, lru_cache
from math import inf
from time import perf_counter
from typing import Any, cast

from card.archive import SIMULATED, Prepared
from tilewright.compiler.cuda.driver import Driver, Memory
from tilewright.compiler.cuda.nvidia import find_cards, open_driver
from tilewright.compiler.operands import bytes_of
from tilewright.core.child import serve
from tilewright.core.codec import to_builtins
from tilewright.core.records import Protocol
from tilewright.graph.network import Array
from tilewright.graph.workload import parse_workload
from tilewright.hardware.cards import card_target
from tilewright.hardware.gpus import nvml_library
from tilewright.hardware.meters import nvml_meter
from tilewright.hardware.meters.stepping import SETTLING_S
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments

_SEED = 0


@cache
def driver_of(on: str) -> Driver:
    """The card, or what stands for it."""
    if on == SIMULATED:
        from tilewright.testing.simulated_driver import SimulatedDriver

        return SimulatedDriver()
    return open_driver(card_target(find_cards()[0]))


def card(on: str) -> dict[str, Any]:
    """What the driver says of it."""
    return to_builtins(driver_of(on).card)


def state(on: str) -> dict[str, Any]:
    """Clocks, power and what slows the card down, by NVML; empty where that does not tell. Nothing
    is set."""
    library = None if on == SIMULATED else nvml_library()
    if library is None:
        return {}
    try:
        library.nvmlInit()
        handle = library.nvmlDeviceGetHandleByIndex(0)
        return {
            "clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            "memory_clock_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
            "slowed_by": library.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "power_limit_w": library.nvmlDeviceGetPowerManagementLimit(handle) / 1e3,
            "driver": str(library.nvmlSystemGetDriverVersion()),
        }
    except library.NVMLError as error:
        return {"reason": str(error)}


def check(kernel: Prepared, on: str) -> dict[str, Any]:
    """The error against numpy, relative to Σ|w||x|, and what it may be."""
    workload = kernel.task
    arrays, expected = _expected(kernel.workload)
    result = kernel.kernel(lambda: driver_of(on)).run(arrays)
    error = relative_error(result, *expected)
    bound = implementation(kernel.candidate.implementation).error_bound(workload)
    return {"error": error, "bound": bound}


@lru_cache(maxsize=1)
def _expected(workload_text: str) -> tuple[list[Array], tuple[Array, Array]]:
    """Arguments of a workload, and what numpy makes of them; kernels of one follow each other."""
    workload = parse_workload(workload_text)
    arrays = sample_arguments(workload, _SEED)
    return arrays, numpy_reference(workload, arrays)


def time(kernel: Prepared, on: str, protocol: Protocol) -> dict[str, Any]:
    """Seconds of each sample."""
    return {"samples_s": kernel.kernel(lambda: driver_of(on)).time(protocol, _SEED, inf)}


class _Watched:
    """A driver that knows how little memory was free."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.least = driver.free_bytes()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def allocate(self, size: int) -> Memory:
        memory = self._driver.allocate(size)
        self.least = min(self.least, self._driver.free_bytes())
        return memory


def memory(kernel: Prepared, on: str) -> dict[str, int]:
    """Bytes of the arrays of a call, and bytes of the GPU that they took."""
    watched = _Watched(driver_of(on))
    free = watched.least
    kernel.kernel(lambda: cast("Driver", watched)).run(sample_arguments(kernel.task, _SEED))
    kinds = [*kernel.types, *(((count,), kind) for count, kind in kernel.workspaces.values())]
    return {"planned_bytes": sum(map(bytes_of, kinds)), "measured_bytes": free - watched.least}


def power(kernel: Prepared, on: str, protocol: Protocol, seconds: float) -> dict[str, Any]:
    """Memory, and joules of a call by the energy counter, over a window that begins when the
    kernel is warm."""
    taken, meter = memory(kernel, on), nvml_meter()
    lost = meter.unavailable()
    if lost is not None:
        return taken | {"reason": lost.reason}
    began_s = 0.0

    def begun() -> None:
        nonlocal began_s
        began_s = perf_counter()
        meter.start()

    watch = (lambda: perf_counter() < began_s + SETTLING_S + seconds, begun)
    bursts = kernel.kernel(lambda: driver_of(on)).keep_running(protocol, _SEED, watch)
    took_s, reading = perf_counter() - began_s, meter.stop()
    calls = sum(burst.calls for burst in bursts)
    found = taken | {"method": meter.method, "calls": calls, "call_s": took_s / calls}
    if reading.power_w is None:
        return found | {"reason": reading.reason}
    energy_j = reading.power_w * took_s / calls
    return found | {
        "window_s": reading.window_s,
        "energy_j": energy_j,
        "power_w": reading.power_w,
    }


if __name__ == "__main__":
    serve({"card": card, "state": state, "check": check, "time": time, "power": power})
