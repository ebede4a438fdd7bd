"""Which tensors are used as indices, and which values they may take.

    ids ─ cast ─ gather(table[100,8])      →     ids: -100 … 99

ONNX counts negative indices from the end: an axis of n elements takes -n … n - 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.fingerprints import canonical_json
from tilewright.graph.network import AttributeValue, Graph
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Workload

_SAME_VALUES = frozenset({"identity", "reshape", "transpose", "expand", "cast"})
"""Operators in whose result every value of their operand is, unchanged."""
_ALONG_AXIS = frozenset({"gather", "interpolate"})
"""Operators whose second operand holds positions along an axis of their first."""
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


def index_uses(
    operator: str, named: Mapping[str, AttributeValue], operands: Sequence[TensorType]
) -> tuple[IndexUse, ...]:
    """The operands of an operator that hold indices."""
    if operator in _ALONG_AXIS:
        axis = named["axis"]
        assert isinstance(axis, int)
        valid = IndexRange.of_axis(operands[0].shape[axis])
        if operator == "interpolate":
            valid = IndexRange(lowest=0, highest=valid.highest)
        return (IndexUse(port=1, ranges=(valid,)),)
    if operator != "opaque" or "indices" not in named:
        return ()
    return tuple(
        IndexUse(port=port, ranges=tuple(IndexRange(lowest=a, highest=b) for a, b in ranges))
        for port, ranges in json.loads(str(named["indices"]))
    )


def argument_uses(workload: Workload) -> tuple[IndexUse, ...]:
    """The arguments of a workload that hold indices; `port` counts its arguments."""
    found: list[IndexUse] = []
    for index, step in enumerate(workload.steps):
        operands, _ = workload.step_types(index)
        for use in index_uses(step.operator, step.named, operands):
            value = step.inputs[use.port]
            if value < len(workload.arguments):
                found.append(IndexUse(port=value, ranges=use.ranges))
    return tuple(found)


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
        operands = [kinds[name] for name in node.inputs]
        for use in index_uses(node.operator, node.named, operands):
            _restrict(wanted, node.inputs[use.port], use.ranges)
        above = wanted.get(node.outputs[0])
        integers = all("int" in kinds[n].dtype for n in (*node.inputs[:1], node.outputs[0]))
        if above is None or node.operator not in _SAME_VALUES or not integers:
            continue
        if len(above) == 1 or node.operator in _KEEP_LAST_AXIS:
            _restrict(wanted, node.inputs[0], above)
    return {name: wanted[name] for name in graph.inputs if name in wanted}


def _restrict(
    wanted: dict[str, tuple[IndexRange, ...]], tensor: str, ranges: tuple[IndexRange, ...]
) -> None:
    """Allow a tensor no more than the ranges, beside what it is allowed already."""
    known = wanted.get(tensor, ranges)
    length = max(len(known), len(ranges))
    if {len(known), len(ranges)} <= {1, length}:
        pairs = zip(_spread(known, length), _spread(ranges, length), strict=True)
        wanted[tensor] = tuple(
            IndexRange(lowest=max(a.lowest, b.lowest), highest=min(a.highest, b.highest))
            for a, b in pairs
        )


def _spread(ranges: tuple[IndexRange, ...], length: int) -> tuple[IndexRange, ...]:
    return ranges * length if len(ranges) == 1 else ranges
