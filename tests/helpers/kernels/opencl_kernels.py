"""Schedules for GPUs as OpenCL, run on the CPU by PoCL: another code generator and another compiler
than those of CUDA text, and work-items that are loops."""

from __future__ import annotations

import importlib
import os
from functools import cache
from importlib.util import find_spec
from tempfile import mkdtemp
from typing import Any

import numpy as np

from tilewright.compiler.build import kernel_module
from tilewright.compiler.cuda.launches import cuda_program
from tilewright.core.records import Candidate, Placement
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram
from tilewright.measure.checking import sample_arguments

INSTALLED = all(find_spec(name) for name in ("pyopencl", "pocl_binary_distribution"))


def opencl_program(task: Workload, candidate: Candidate, on: Placement) -> CudaProgram:
    """The OpenCL text of a candidate's schedule for a GPU, and its launches. Schedules that shuffle
    within a warp raise an InternalError of TVM's: OpenCL has no warps."""
    import tvm

    target = tvm.target.Target(
        {
            "kind": "opencl",
            "max_num_threads": on.target.limits.block_threads,
            "max_threads_per_block": on.target.limits.block_threads,
            "max_shared_memory_per_block": on.target.limits.static_shared_bytes,
            "thread_warp_size": 1,
        }
    )
    return cuda_program(kernel_module(task, candidate, on.target, on.resources), target)


@cache
def _queue() -> Any:
    os.environ.setdefault("POCL_CACHE_DIR", mkdtemp(prefix="tilewright-tests-pocl-"))
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    opencl: Any = importlib.import_module("pyopencl")
    return opencl.CommandQueue(opencl.Context(opencl.get_platforms()[0].get_devices()))


def run_opencl(program: CudaProgram, task: Workload) -> Array:
    """The result of a workload on the arrays of seed 0."""
    opencl: Any = importlib.import_module("pyopencl")
    queue, flags = _queue(), opencl.mem_flags
    built = opencl.Program(queue.context, program.source).build()
    given = {f"argument{n}": array for n, array in enumerate(sample_arguments(task, 0))}
    result = np.full(task.result.shape, np.nan, task.result.dtype)
    buffers = {
        name: opencl.Buffer(
            queue.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(a)
        )
        for name, a in {**given, "result": result}.items()
    }
    for name, (size, dtype) in program.workspaces.items():
        taken = size * np.dtype(dtype).itemsize
        buffers[name] = opencl.Buffer(queue.context, flags.READ_WRITE, size=taken)
    for launch in program.launches:
        kernel = opencl.Kernel(built, launch.kernel)
        kernel.set_args(
            *(buffers[it] if isinstance(it, str) else np.int32(it) for it in launch.arguments)
        )
        sizes = tuple(a * b for a, b in zip(launch.grid, launch.block, strict=True))
        opencl.enqueue_nd_range_kernel(queue, kernel, sizes, launch.block)
    opencl.enqueue_copy(queue, result, buffers["result"])
    queue.finish()
    return result
