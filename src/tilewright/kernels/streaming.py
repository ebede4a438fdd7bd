"""What kernels that mostly move memory share: channel blocks, error bounds."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.ports import Ports, alike_ports

_EXACT = frozenset(
    {
        "identity", "relu", "negative", "abs", "maximum", "minimum", "where", "floor", "ceil",
        "round", "sign", "max_pool2d", "reduce_max", "reduce_min", "reshape", "transpose", "slice",
        "concat", "pad", "expand", "gather", "resize_nearest",
        "cache_write",
    }
)  # fmt: skip
"""Operators whose result is one of their operands, or a whole number: nothing is rounded."""


def accumulation_error(workload: Workload) -> float:
    """Error relative to sum |w||x| of sums as long as the workload's longest, term after term, and
    of what is stored or handed on in half precision. Halves are accumulated in single precision;
    where that is double, the reference's error counts as well.
    """
    double, single = 2 * _roundoff("float64"), _roundoff("float32")
    epsilon = double if _is_double(workload) else single
    length = max(1.0, workload.flop / max(1, workload.result.elements))
    return max(32 * epsilon, 4 * epsilon * length**0.5) + storage_error(workload)


def storage_error(workload: Workload) -> float:
    """A rounding for each step that computes something and whose result is a half, and one for the
    reference."""
    results = workload.types[len(workload.arguments) :]
    rounded = [
        _roundoff(kind.dtype)
        for step, kind in zip(workload.steps, results, strict=True)
        if element_type(kind.dtype).is_half and step.operator not in _EXACT
    ]
    return sum(rounded) + max(rounded, default=0.0)


def _roundoff(dtype: str) -> float:
    return element_type(dtype).unit_roundoff or 0.0


def function_error(workload: Workload) -> float:
    """Error of a transcendental function, relative to its largest value: the C library's, in single
    precision that of polynomials."""
    return 1e-12 if _is_double(workload) else 1e-5


def _is_double(workload: Workload) -> bool:
    """Whether everything that is no whole number is in double precision."""
    return {kind.dtype for kind in workload.types if "float" in kind.dtype} == {"float64"}


class Unpacked:
    """The parts of a spec that say: there are no knobs, every combination of them is fine, no
    constant is repacked."""

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """The result in blocks or plain, operands alike."""
        return alike_ports(workload, target)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """None: there is one way."""
        return ()

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Always."""
        return True

    def error_bound(self, workload: Workload) -> float:
        """Summation in the type's own precision, in single where that is a half."""
        return accumulation_error(workload)

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Nothing is repacked."""
        return {}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """The constants as they are."""
        return constants


class Streaming(Unpacked):
    """The parts of a spec of kernels that compute functions and sums while they move memory."""

    def error_bound(self, workload: Workload) -> float:
        """Sums, or polynomials that are good to a few units in the last place."""
        return max(function_error(workload), super().error_bound(workload))
