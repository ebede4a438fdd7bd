"""What inputs may hold: which tensors are used as indices, the values these may take, and random
values that a network accepts.

    ids ─ cast ─ gather(table[100,8])      →     ids: -100 … 99

ONNX counts negative indices from the end: an axis of n elements takes -n … n - 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from tilewright.core.codec import canonical_json
from tilewright.graph.network import Applied, Array, Graph, Node, TensorType
from tilewright.graph.workload import Workload

_SAME_VALUES = frozenset({"identity", "reshape", "transpose", "expand", "cast"})
"""Operators in whose result every value of their operand is, unchanged."""
_CHOSEN_VALUES = frozenset({"slice", "gather", "where", "concat", "pad", "maximum", "minimum"})
"""Operators each value of whose result is one of their operands'."""
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
        return str(self.lowest) + (f" … {self.highest}" if self.highest > self.lowest else "")


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
    named = str(applied.named.get("operands", "")).split()
    if applied.operator == "recurrent" and "lengths" in named:
        steps = IndexRange(lowest=0, highest=operands[0].shape[0])
        return (IndexUse(port=2 + named.index("lengths"), ranges=(steps,)),)
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
    return max(1, min([usual, *(item.highest + 1 for use in uses for item in use.ranges)]))


def input_ranges(graph: Graph) -> dict[str, tuple[IndexRange, ...]]:
    """What the values of those inputs may be that are fixed, or that the network takes for indices
    as they are.

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
    for name in graph.fixed & graph.examples.keys():
        values = graph.examples[name].reshape(-1).tolist()
        wanted[name] = tuple(IndexRange(lowest=value, highest=value) for value in values)
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


_INTEGER_LIMIT = 100
_WANTED_SPREAD = 50.0
_LEAST_OF_IMAGE = 32
_COLOURS = 4
_SPREADS = {"int8": 74.0, "uint8": 147.0}
"""Root mean square of evenly distributed bytes."""
_CODED_ATTENTION = "quantized_attention"
_SHARES = 255.0
"""Codes of all shares of the keys together."""


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """N(0, 1) for floats, valid indices for integers, coin flips for booleans; by input name. What
    may be an image is one, `random_image`. Those of which the graph has an example are that."""
    rng = np.random.default_rng(seed)
    values: dict[str, Array] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if name in graph.examples:
            values[name] = graph.examples[name]
        elif kind.dtype == "bool" or "int" in kind.dtype:
            limit = 2 if kind.dtype == "bool" else input_limit(graph, name)
            values[name] = rng.integers(0, limit, kind.shape).astype(kind.dtype)
        else:
            image = len(kind.shape) == 4 and min(kind.shape[2:]) >= _LEAST_OF_IMAGE
            drawn = random_image(rng, kind.shape) if image else _normal(rng, kind.shape)
            values[name] = drawn.astype(kind.dtype)
    return values


def random_image(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Noise over an uneven board of 4x4 colours, [batch, channels, height, width], of N(0, 1): with
    areas and edges that differ between images, where all noise looks the same to a network that
    averages over places."""
    colours = _normal(rng, (*shape[:2], _COLOURS, _COLOURS))
    rows, columns = (
        np.sort(rng.integers(0, extent, _COLOURS - 1)).searchsorted(np.arange(extent), "right")
        for extent in shape[2:]
    )
    board = colours[:, :, rows][:, :, :, columns]
    return (board + _normal(rng, shape) / 2) * np.float32(sqrt(0.8))


def _normal(rng: np.random.Generator, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    return rng.standard_normal(tuple(shape), dtype=np.float32)


def input_limit(graph: Graph, tensor: str) -> int:
    """Integers from zero to below this are valid wherever `tensor` is used as an index."""
    limits: dict[str, int] = {}
    for node in reversed(graph.nodes):
        uses = index_uses(node, [graph.types[name] for name in node.inputs])
        for use in uses:
            name = node.inputs[use.port]
            limits[name] = index_limit((use,), limits.get(name, _INTEGER_LIMIT))
        if node.named.get("island"):  # nobody knows what they are taken for
            limits.update(dict.fromkeys(node.inputs, 1))
        below = limits.get(node.outputs[0])
        if below is None or "int" not in graph.types[node.outputs[0]].dtype:
            continue
        if node.operator not in _SAME_VALUES | _CHOSEN_VALUES:
            below = _below_a_sum(graph, node, below)
        for port, name in enumerate(node.inputs):
            if "int" in graph.types[name].dtype and all(use.port != port for use in uses):
                limits[name] = min(limits.get(name, _INTEGER_LIMIT), below)
    return limits.get(tensor, _INTEGER_LIMIT)


def _below_a_sum(graph: Graph, node: Node, below: int) -> int:
    """The limit for operands of what computes indices: what is left beside a constant that is
    added; else 2, for most of the time it counts the ones of a mask."""
    added = [graph.constants[name] for name in node.inputs if name in graph.constants]
    if node.operator != "add" or not added:
        return 2
    return max(1, below - max(0, int(np.max(added[0], initial=0))))


def argument_limit(workload: Workload) -> int:
    """Integers from zero to below this are valid wherever the workload uses them as indices."""
    island = any(step.named.get("island") for step in workload.steps)
    return index_limit(argument_uses(workload), 1 if island else _INTEGER_LIMIT)


def argument_scales(workload: Workload) -> dict[int, float]:
    """Sizes for float arguments, by their index: those that scale sums of random bytes, so that
    results fit a byte, and weights of recurrent layers.

    Of larger weights a layer is chaotic: an error of one rounding doubles from step to step.
    """
    anchor, index = workload.anchor, workload.anchor_index
    if anchor is None or index is None:
        return {}
    operands, result = workload.step_types(index)
    if anchor.operator == "recurrent":
        return {anchor.inputs[1]: 0.5 / sqrt(operands[1].shape[0])}
    if anchor.operator == _CODED_ATTENTION:
        size = _WANTED_SPREAD / (_SHARES * _SPREADS["uint8"])
    elif result.dtype != "int32" or len(operands) != 2:
        return {}
    else:
        spread = prod(_SPREADS.get(kind.dtype, 1.0) for kind in operands)
        size = _WANTED_SPREAD / (spread * sqrt(max(1, prod(operands[1].shape[1:]))))
    count = len(workload.arguments)
    for step in workload.steps[index + 1 :]:
        scales = [i for i in step.inputs if i < count]
        if step.operator == "multiply" and len(scales) == 1:
            floats = workload.arguments[scales[0]].type.dtype == "float32"
            return {scales[0]: size} if floats else {}
    return {}


def argument_codings(workload: Workload) -> dict[int, Array]:
    """The codings of attention on codes, by the index of their argument: scores fit a byte before
    they are rounded to codes, and shares of the keys are codes of their own scale."""
    anchor = workload.anchor
    if anchor is None or anchor.operator != _CODED_ATTENTION:
        return {}
    types = [workload.types[value] for value in anchor.inputs]
    depth = types[0].shape[2] // anchor.integer("heads")
    rows = np.full((types[3].shape[0], 4), (0.7, 1.0, -128, 127), np.float32)
    if anchor.integer("masked") > 0:
        rows[anchor.integer("masked"), 1] = 0.9
    rows[0, 0] = _WANTED_SPREAD / (_SPREADS["uint8"] ** 2 * sqrt(depth))
    rows[-1] = rows[0, 0] if len(rows) == 1 else 0.03, 1 / _SHARES, 0, _SHARES
    return {anchor.inputs[3]: rows}
