"""CUDA kernels of workloads, executed on the CPU and compared with numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.operands import physical_operands
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.arrays import to_logical
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments
from tilewright.testing.cuda_execution import cuda_executable

ORDERS = (0, 1, 2)


def executed(
    program: CudaProgram,
    task: Workload,
    arrays: Sequence[Array],
    seed: int,
    arch: str = "sm_90",
    candidate: Candidate | None = None,
) -> Array:
    """The result of a workload's CUDA text, in the order of blocks, warps and lanes of that seed;
    memory that nothing wrote is NaN, or the largest number of a whole type. Arrays are logical; the
    text of a `candidate` gets them in its forms, constants packed."""
    placed = physical_operands(task, candidate, arrays) if candidate else arrays
    form = candidate.forms[-1] if candidate else PLAIN
    given = {f"argument{place}": array.copy() for place, array in enumerate(placed)}
    for array in given.values():
        array.flags.writeable = False
    result = _unwritten(form.physical_shape(task.result.shape), task.result.dtype)
    kept = {name: _unwritten((size,), kind) for name, (size, kind) in program.workspaces.items()}
    arrays_by_name = given | kept | {"result": result}
    cuda_executable(program.source, arch).run(program.launches, arrays_by_name, seed=seed)
    return to_logical(result, form, task.result.shape)


def _unwritten(shape: Sequence[int], dtype: str) -> Array:
    kind = np.dtype(dtype)
    return np.full(
        shape, np.nan if kind.kind in "fV" else 1 if kind.kind == "b" else np.iinfo(kind).max, kind
    )


def check_cuda_kernel(
    program: CudaProgram,
    task: Workload,
    arch: str = "sm_90",
    name: str = "generic",
    candidate: Candidate | None = None,
) -> None:
    """The CUDA text, of a `candidate` in its forms, gives numpy's numbers in three orders, within
    an implementation's bound."""
    arrays = sample_arguments(task, 0)
    expected, scale = numpy_reference(task, arrays)
    bound = implementation(name).error_bound(task)
    for seed in ORDERS:
        result = executed(program, task, arrays, seed, arch, candidate)
        error = relative_error(result, expected, scale)
        assert error <= bound, f"error {error:.3g} above {bound:.3g}, seed {seed}"
