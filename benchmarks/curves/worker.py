"""The child process that runs prepared kernels on so many cores. It needs TVM's runtime, not its
compiler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from curves.archive import COPY, Archive, Wanted, library_of
from tilewright.compiler import kernel_runs
from tilewright.compiler.kernel_runs import BuiltKernel, rewriter
from tilewright.core.child import serve, wait_until_asleep
from tilewright.core.records import Protocol
from tilewright.core.timings import Burst
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments

_SEED = 0
_SETTLED_S, _GIVE_UP_S = 0.5, 0.5
_USE_GIVEN_CPUS = -2
_HAND_OVERS, _LAUNCHES = 500, 200


def begin(folder: str, cpus: Sequence[int]) -> int:
    """Give this thread's pool a thread on each of these CPUs; how many those are."""
    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    configure(_USE_GIVEN_CPUS, len(cpus), [str(cpu) for cpu in cpus])
    copy = tvm.runtime.load_module(str(Path(folder) / COPY))["main"]
    tvm_ffi.register_global_func(kernel_runs.COPY, copy, override=True)
    return len(cpus)


@cache
def _archive(folder: str) -> Archive:
    return Archive.read(Path(folder))


@cache
def _library(folder: str, task: int) -> Any:
    return tvm.runtime.load_module(str(library_of(Path(folder), task)))


def _kernel(folder: str, wanted: Wanted) -> BuiltKernel:
    task = _archive(folder).tasks[wanted.task]
    kernel = task.kernel(wanted.key)
    return BuiltKernel(
        call=_library(folder, wanted.task)[kernel.symbol],
        argument_types=kernel.types,
        kernel_hash=kernel.key,
        build_s=0.0,
        workload=task.workload,
        candidate=kernel.candidate,
    )


def time(folder: str, wanted: Wanted, protocol: Protocol) -> dict[str, Any]:
    """Seconds of each sample."""
    return {"samples_s": _kernel(folder, wanted).time(protocol, _SEED, _GIVE_UP_S)}


def keep_running(
    folder: str, wanted: Wanted, protocol: Protocol, flag: str, started: str
) -> list[Burst]:
    """Call it again and again while the file `flag` exists; `started` is written after the first
    calls. What it did since."""
    watch = (Path(flag).exists, Path(started).touch)
    return _kernel(folder, wanted).keep_running(protocol, _SEED, watch)


def check(folder: str, wanted: Wanted) -> dict[str, float]:
    """The error against numpy, relative to Σ|w||x|, and what it may be."""
    kernel = _kernel(folder, wanted)
    arrays = sample_arguments(kernel.workload, _SEED)
    result = kernel.run(arrays)
    bound = implementation(kernel.candidate.implementation).error_bound(kernel.workload)
    expected = numpy_reference(kernel.workload, arrays)
    return {"error": relative_error(result, *expected), "bound": bound}


def copying(size_bytes: int, repeats: int) -> list[float]:
    """Seconds of each copy of so many bytes by all cores, the first one left out."""
    copy = rewriter([tvm.runtime.tensor(np.zeros(size_bytes // 4, np.float32))])
    found = []
    for _ in range(repeats + 1):
        began = perf_counter()
        copy()
        found.append(perf_counter() - began)
    return found[1:]


def launching() -> float:
    """Median seconds of a kernel that copies a number in each of its 64 pieces."""
    return median(copying(4 * 64, _LAUNCHES))


def handing_over(cpus: Sequence[int]) -> float:
    """Mean seconds from setting an event on the first of two CPUs until a thread on the second one
    has seen it."""
    events = Event(), Event()

    def turns(mine: int) -> None:
        os.sched_setaffinity(0, {cpus[mine]})
        for _ in range(_HAND_OVERS):
            events[mine].wait()
            events[mine].clear()
            events[1 - mine].set()

    threads = [Thread(target=turns, args=(mine,)) for mine in range(2)]
    for thread in threads:
        thread.start()
    began = perf_counter()
    events[0].set()
    for thread in threads:
        thread.join()
    return (perf_counter() - began) / (2 * _HAND_OVERS)


def rest() -> bool:
    """Wait until the pool sleeps; whether it does."""
    return wait_until_asleep(_SETTLED_S)


if __name__ == "__main__":
    handlers = (begin, time, keep_running, check, copying, launching, handing_over, rest)
    serve({handler.__name__: handler for handler in handlers})
