"""What implementations for NVIDIA's GPUs have in common: their kind of target, their builder, and
how wrong they may be."""

from __future__ import annotations

from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FilteredAsColumns
from tilewright.kernels.ports import Ports, plain_ports
from tilewright.kernels.streaming import Streaming

CUDA = "cuda"
"""The kind of target, and what builds kernels for it."""

FAST_FUNCTIONS_ERROR = 1e-4
"""Of a function of the fast unit (`__expf`, division), relative to its largest value: kernels are
compiled with `--use_fast_math`, as TVM compiles them."""


_FIRST_ASYNCHRONOUS = 80


def has_async_copies(target: Target) -> bool:
    """Whether a GPU copies from its memory to shared memory beside its threads, without their
    registers: those from sm_80 on (PTX ISA, `cp.async`)."""
    number = target.architecture.removeprefix("sm_").rstrip("a")
    return number.isdecimal() and int(number) >= _FIRST_ASYNCHRONOUS


_VIEWS = frozenset({"reshape", "transpose", "slice", "expand"})
"""Movements of which each element is one of their operand's."""


def is_from_argument(workload: Workload, value: int) -> bool:
    """Whether each element of a value is one of an argument's."""
    step = value - len(workload.arguments)
    if step < 0:
        return True
    made = workload.steps[step]
    return made.operator in _VIEWS and is_from_argument(workload, made.inputs[0])


def bytes_of(dtype: str) -> int:
    """Bytes of an element in memory."""
    return element_type(dtype).bytes


class CudaKernels(Streaming):
    """The parts of a spec for GPUs that most of them share: rows in memory as numpy has them, no
    constant repacked."""

    target_kinds = frozenset({CUDA})
    builder = CUDA

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Row-major everywhere."""
        return plain_ports(workload)

    def error_bound(self, workload: Workload) -> float:
        """That of sums, and of functions of the fast unit."""
        return max(super().error_bound(workload), self._functions_error(workload))

    def _functions_error(self, workload: Workload) -> float:
        exact = all(step.operator in _ROUNDED_AS_SUMS for step in workload.steps)
        return 0.0 if exact else FAST_FUNCTIONS_ERROR


class ColumnKernels(FilteredAsColumns, CudaKernels):
    """The parts of a spec whose settings are filtered as columns: by what the kernel and the launch
    demand."""


_ROUNDED_AS_SUMS = frozenset(
    {
        *("add", "subtract", "multiply", "relu", "maximum", "minimum", "clip", "identity", "where"),
        *("conv2d", "conv2d_transpose", "dense", "batch_matmul", "reduce_sum", "reduce_max"),
        *("reduce_min", "max_pool2d", "reshape", "transpose", "slice", "concat", "pad", "expand"),
        *("negative", "abs", "gather", "resize_nearest", "cast"),
    }
)
"""Operators that compile to additions, multiplications and choices."""
