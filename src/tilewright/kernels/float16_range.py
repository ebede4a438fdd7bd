"""What does not fit float16, whose numbers end at 65504 and lose bits below 6e-5.

    activations up to 9e4            stay in float32, and so do the products that read them
    weights of 1e-6                  the products of these are in float32
    activations 300 × weights 10     a run of products could be beyond 65504: in float32

What is decided is decided by the inputs that were looked at, with a margin for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.core.element_types import element_type
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Step, Workload
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.float16_sums import LONGEST_RUN
from tilewright.kernels.ports import multiplied

_LARGEST = element_type(FLOAT16).largest
_MARGIN = 4.0
"""Other inputs may be so many times as large."""
_COARSE = 2.0 * (element_type(FLOAT16).unit_roundoff or 0.0)
"""More than that rounding adds only where many numbers are below the normal ones."""

_NAMED = 5
"""Tensors that are named where many do not fit."""

Ranges = Mapping[str, tuple[float, float]]


def unfit(network: FusedNetwork, ranges: Ranges, *, in_runs: bool) -> dict[str, str]:
    """The tensors that stay in single precision, and why: for their own numbers, or for products
    that read them; `in_runs` says that products are added up in float16."""
    found: dict[str, str] = {}
    for tensor, (largest, _) in ranges.items():
        if tensor not in network.graph.constants and not _fits(ranges[tensor], _MARGIN):
            found[tensor] = _told(tensor, largest)
    for call in network.calls:
        for tensor, reason in _of_products(call, ranges, in_runs=in_runs):
            found.setdefault(tensor, reason)
    return found


def told_beyond(beyond: Mapping[str, str], what: str) -> str:
    """A sentence that names what does not fit, and what becomes of it; empty where all does."""
    if not beyond:
        return ""
    named, more = list(dict.fromkeys(beyond.values())), ""
    if len(named) > _NAMED:
        named, more = named[:_NAMED], f" and {len(named) - _NAMED} more"
    return f"Numbers that do not fit float16 {what}: {', '.join(named)}{more}."


def _fits(of: tuple[float, float], margin: float = 1.0) -> bool:
    largest, rounding = of
    return largest * margin <= _LARGEST and rounding <= _COARSE


def _told(tensor: str, largest: float) -> str:
    return f"{tensor} (up to {largest:.2g})"


def _of_products(call: TaskCall, ranges: Ranges, *, in_runs: bool) -> Iterator[tuple[str, str]]:
    """The data of a product with constants, where these do not fit, or a run of products."""
    workload = call.workload
    read = workload.anchor.inputs if workload.anchor is not None else ()
    weights = [call.inputs[i] for i in read if workload.is_constant(i)]
    data = [call.inputs[i] for i in multiplied(workload) if call.inputs[i] in ranges]
    largest = max((ranges[tensor][0] for tensor in data), default=0.0)
    computed = any(not OPERATORS[s.operator].movement for s in _ahead(workload))
    for weight in (name for name in weights if name in ranges):
        product = ranges[weight][0] * LONGEST_RUN * largest * _MARGIN
        beyond = in_runs and (computed or product > _LARGEST)
        if not _fits(ranges[weight]) or beyond:
            told = f"products with {_told(weight, ranges[weight][0])}"
            yield from ((tensor, told) for tensor in data)


def _ahead(workload: Workload) -> tuple[Step, ...]:
    """The steps before the anchor, which compute what nobody has looked at."""
    return workload.steps[: workload.anchor_index or 0]
