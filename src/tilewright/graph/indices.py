"""Which tensors are used as indices, and which values they may take.

    ids ─ cast ─ gather(table[100,8])      →     ids: -100 … 99

ONNX counts negative indices from the end: an axis of n elements takes -n … n - 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.core.fingerprints import canonical_json
from tilewright.graph.network import Applied, Graph
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Workload

_SAME_VALUES = frozenset({"identity", "reshape", "transpose", "expand", "cast"})
"""Operators in whose result every value of their operand is, unchanged."""
_KEEP_LAST_AXIS = frozenset({"identity", "cast"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """The smallest and the largest value that is a valid index."""

    lowest: int
    highest: int

    @classmethod
    def of_axis(cls, extent: int) -> IndexRange:
        """What an axis of so many elements takes, negative indices included."""
        return cls(lowest=-extent, highest=extent - 1)

    def __str__(self) -> str:
        return f"{self.lowest} … {self.highest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUse:
    """Operand `port` of an operator holds indices.

    `ranges` has one entry for all values, or one for each position along the last axis.
    """

    port: int
    ranges: tuple[IndexRange, ...]


def indices_text(uses: Iterable[IndexUse]) -> str:
    """The `indices` attribute of opaque nodes: JSON `[[port,[[lowest,highest],…]],…]`."""
    return canonical_json([[u.port, [[r.lowest, r.highest] for r in u.ranges]] for u in uses])


def index_uses(applied: Applied, operands: Sequence[TensorType]) -> tuple[IndexUse, ...]:
    """The operands of an operator that hold indices: the second one of those along an axis, and
    what an opaque one says."""
    if applied.operator in ("gather", "interpolate"):
        valid = IndexRange.of_axis(operands[0].shape[applied.integer("axis")])
        if applied.operator == "interpolate":
            valid = IndexRange(lowest=0, highest=valid.highest)
        return (IndexUse(port=1, ranges=(valid,)),)
    given = applied.named.get("indices") if applied.operator == "opaque" else None
    return tuple(
        IndexUse(port=port, ranges=tuple(IndexRange(lowest=a, highest=b) for a, b in ranges))
        for port, ranges in json.loads(str(given or "[]"))
    )


def argument_uses(workload: Workload) -> tuple[IndexUse, ...]:
    """The arguments of a workload that hold indices; `port` counts its arguments."""
    return tuple(
        IndexUse(port=step.inputs[use.port], ranges=use.ranges)
        for index, step in enumerate(workload.steps)
        for use in index_uses(step, workload.step_types(index)[0])
        if step.inputs[use.port] < len(workload.arguments)
    )


def index_limit(uses: Iterable[IndexUse], usual: int) -> int:
    """Integers from zero to below this are valid in all uses; at most `usual`, at least 1."""
    tops = [item.highest + 1 for use in uses for item in use.ranges]
    return max(1, min([usual, *tops]))


def input_ranges(graph: Graph) -> dict[str, tuple[IndexRange, ...]]:
    """What the values of those inputs may be that the network takes for indices as they are.

    Only where every value of an input arrives: a part that is cut off may hold anything.
    """
    kinds = graph.types
    wanted: dict[str, tuple[IndexRange, ...]] = {}
    for node in reversed(graph.nodes):
        for use in index_uses(node, [kinds[name] for name in node.inputs]):
            _restrict(wanted, node.inputs[use.port], use.ranges)
        above = wanted.get(node.outputs[0])
        integers = all("int" in kinds[n].dtype for n in (*node.inputs[:1], node.outputs[0]))
        if (
            above is not None
            and integers
            and node.operator in (_SAME_VALUES if len(above) == 1 else _KEEP_LAST_AXIS)
        ):
            _restrict(wanted, node.inputs[0], above)
    return {name: wanted[name] for name in graph.inputs if name in wanted}


def _restrict(
    wanted: dict[str, tuple[IndexRange, ...]], tensor: str, ranges: tuple[IndexRange, ...]
) -> None:
    """Allow a tensor no more than the ranges, beside what it is allowed already."""
    known = wanted.get(tensor, ranges)
    length = max(len(known), len(ranges))
    if {len(known), len(ranges)} <= {1, length}:
        spread = (ranges * (length // len(ranges)) for ranges in (known, ranges))
        pairs = zip(*spread, strict=True)
        wanted[tensor] = tuple(
            IndexRange(lowest=max(a.lowest, b.lowest), highest=min(a.highest, b.highest))
            for a, b in pairs
        )
