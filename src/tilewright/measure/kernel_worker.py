"""The child process that builds and times kernels; `measure.kernels` is the other side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.compiler import execute, handoffs, opaque, peaks
from tilewright.compiler.build import accept_target, kernel_module
from tilewright.compiler.builders.base import Kernel
from tilewright.compiler.builders.registry import builder_for
from tilewright.compiler.cuda.code import cuda_code
from tilewright.compiler.cuda.kernels import CudaKernel
from tilewright.compiler.features.loops import kernel_features
from tilewright.compiler.finer_noise import finer_noise
from tilewright.compiler.rounding_noise import rounding_noise
from tilewright.compiler.value_ranges import value_ranges
from tilewright.core.child import serve, wait_until_asleep
from tilewright.core.records import Candidate, Placement, Protocol
from tilewright.core.timings import Burst
from tilewright.graph.arrays import map_array
from tilewright.graph.workload import Workload, parse_workload
from tilewright.hardware.gpus import CudaCode

_kernels: dict[int, tuple[Kernel, Workload]] = {}


@execute.on_all_cpus()
def build(
    slot: int, workload_text: str, candidate: Candidate, placement: Placement
) -> dict[str, Any]:
    """Build a candidate and keep it in `slot`."""
    workload = parse_workload(workload_text)
    kernel = builder_for(candidate).build(
        workload, candidate, placement.target, placement.resources
    )
    _kernels[slot] = (kernel, workload)
    return {"kernel_hash": kernel.kernel_hash, "build_s": kernel.build_s}


def measure(slot: int, protocol: Protocol, seed: int, give_up_s: float) -> list[float]:
    """Time the kernel in `slot`."""
    return _kernels[slot][0].time(protocol, seed, give_up_s)


@execute.on_all_cpus()
def open_gpu(slot: int) -> None:
    """Open the GPU for which the kernel in `slot` was built, before somebody waits for its time."""
    kernel = _kernels[slot][0]
    if isinstance(kernel, CudaKernel):
        kernel.open_driver()


def repeat(slot: int, protocol: Protocol, seed: int, seconds: float) -> int:
    """Call the kernel in `slot` again and again for at least so many seconds; returns how often.

    It does not wait for the thread pool to sleep: somebody reads a meter when this ends.
    """
    return _kernels[slot][0].repeat(protocol, seed, seconds)


def keep_running(slot: int, protocol: Protocol, seed: int, flag: str, started: str) -> list[Burst]:
    """Call the kernel in `slot` again and again while the file `flag` exists; the file `started` is
    written after the first calls. What it did since."""
    return _kernels[slot][0].keep_running(protocol, seed, (Path(flag).exists, Path(started).touch))


def evaluate(slot: int, folder: str, count: int) -> npt.NDArray[np.generic]:
    """The result of the kernel in `slot` on logical arrays, `0.npy`, `1.npy` … in a folder."""
    kernel, workload = _kernels[slot]
    return kernel.run(logical_arrays(workload, folder, count))


def logical_arrays(workload: Workload, folder: str, count: int) -> list[npt.NDArray[np.generic]]:
    """The first arguments of a workload, from `0.npy`, `1.npy` … in a folder."""
    return [
        map_array(Path(folder) / f"{number}.npy", argument.type.dtype)
        for number, argument in enumerate(workload.arguments[:count])
    ]


@execute.on_all_cpus()
def identify(workload_text: str, candidate: Candidate, placement: Placement) -> str:
    """The hash of a candidate's scheduled kernel, without compiling it."""
    return builder_for(candidate).identify(
        parse_workload(workload_text), candidate, placement.target, placement.resources
    )


@execute.on_all_cpus()
def features(
    workload_text: str, candidate: Candidate, placement: Placement, kind: str
) -> npt.NDArray[np.float64]:
    """A row of features of a candidate's scheduled kernel."""
    module = kernel_module(
        parse_workload(workload_text), candidate, placement.target, placement.resources
    )
    return kernel_features(module, placement.tvm_target, kind)


def render(workload_text: str, candidate: Candidate, placement: Placement, view: str) -> str:
    """A kernel as `tir` (scheduled loops) or `asm` (machine code)."""
    return builder_for(candidate).render(
        parse_workload(workload_text), candidate, placement.target, placement.resources, view
    )


def code(
    workload_text: str,
    candidate: Candidate,
    placement: Placement,
    compiled: bool,  # noqa: FBT001 - a message
) -> CudaCode:
    """A candidate as CUDA code, with the compiler's report where it is to be `compiled`."""
    return cuda_code(
        parse_workload(workload_text),
        candidate,
        placement.target,
        placement.resources,
        compiled=compiled,
    )


def release(slots: list[int]) -> None:
    """Forget kernels."""
    for slot in slots:
        _kernels.pop(slot, None)


if __name__ == "__main__":
    serve(
        {
            "prepare": execute.set_threads,
            "build": build,
            "measure": measure,
            "open_gpu": open_gpu,
            "repeat": repeat,
            "keep_running": keep_running,
            "identify": identify,
            "features": features,
            "peaks": peaks.measured_peaks,
            "lane handoffs": handoffs.lane_handoffs,
            "render": render,
            "target": accept_target,
            "unsupported": opaque.unsupported,
            "code": code,
            "noise": rounding_noise,
            "finer noise": finer_noise,
            "ranges": value_ranges,
            "settle": wait_until_asleep,
            "evaluate": evaluate,
            "release": release,
        }
    )
