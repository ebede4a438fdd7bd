"""The child process that runs prepared kernels: on the first GPU of the machine, or, simulated, on
the CPU. It needs neither TVM nor a compiler."""

from __future__ import annotations

from functools import cache, lru_cache
from math import inf
from threading import Event, Thread
from time import perf_counter
from typing import Any, Self, cast

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
from tilewright.hardware.meters.base import CountingMeter
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments

_SEED = 0
_POLL_S, _SETTLING_S, _LEAST_TICKS = 1e-3, 0.15, 4


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


class _Ticks:
    """The energy counter of the first GPU at the moments at which it goes on, which it does in
    steps of 20 to 100 ms: between two of them the mean power is exact."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        self._meter = nvml_meter()
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    @property
    def method(self) -> str:
        """What reads it; why nothing does, where there is none."""
        lost = self._meter.unavailable()
        return self._meter.method if lost is None else lost.reason

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        (counter,) = cast("CountingMeter", self._meter).counters
        last = counter.read_j()
        while not self._ended.wait(_POLL_S):
            now = counter.read_j()
            if now != last:
                self.found.append((perf_counter(), now))
                last = now


def power(kernel: Prepared, on: str, protocol: Protocol, seconds: float) -> dict[str, Any]:
    """Memory, and joules of a call by the energy counter, over a window that begins when the
    kernel is warm and the board draws what it does for it."""
    taken, ticks = memory(kernel, on), _Ticks()
    if not isinstance(nvml_meter(), CountingMeter):
        return taken | {"reason": ticks.method}
    began_s = 0.0

    def begun() -> None:
        nonlocal began_s
        began_s = perf_counter()

    with ticks:
        watch = (lambda: perf_counter() < began_s + _SETTLING_S + seconds, begun)
        bursts = kernel.kernel(lambda: driver_of(on)).keep_running(protocol, _SEED, watch)
        calls = sum(burst.calls for burst in bursts)
        took_s = perf_counter() - began_s
    seen = [it for it in ticks.found if it[0] > began_s + _SETTLING_S]
    found = taken | {"method": ticks.method, "calls": calls, "call_s": took_s / calls}
    if len(seen) < _LEAST_TICKS:
        return found | {"reason": f"the energy counter went on {len(seen)} times"}
    (first_s, first_j), (last_s, last_j) = seen[0], seen[-1]
    power_w = (last_j - first_j) / (last_s - first_s)
    energy_j = power_w * took_s / calls
    return found | {"window_s": last_s - first_s, "energy_j": energy_j, "power_w": power_w}


if __name__ == "__main__":
    serve({"card": card, "state": state, "check": check, "time": time, "power": power})
