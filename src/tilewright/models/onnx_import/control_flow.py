"""Branches and loops: what decides them is known when a network is imported, or both branches are
computed; loops are written out, turn by turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np

from tilewright.core.errors import ModelError, NotCompilable
from tilewright.graph.clean.edit import only_if
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    axis_of,
    translates,
)
from tilewright.models.onnx_model import nested_graphs

MOST_TENSORS = 4_000
"""A loop that becomes more of our tensors than this, constants included, is not written out: most
of them are the result of a kernel to call."""


@translates("If")
def branch(node: OnnxNode) -> Translated:
    """If: the branch that is taken, where that is known; else both, and a choice between results
    of equal types. Branches have no effects, so computing both is right."""
    condition = node.input(0)
    if condition.value is not None:
        taken = "then_branch" if _only_value(condition) else "else_branch"
        return node.inside(node.body(taken), (), taken)
    only_if(condition.type.elements == 1)
    _only_without_indices(node)
    yes, no = (node.inside(node.body(name), (), name) for name in ("then_branch", "else_branch"))
    only_if(all(each.items is None for each in (*yes, *no)))
    only_if(all(a.type == b.type for a, b in zip(yes, no, strict=True)))
    decided = condition.reshape(())
    return [decided.emit("where", a, b) for a, b in zip(yes, no, strict=True)]


def _only_value(tensor: Tensor) -> int:
    """The one element of a known tensor. Raises ModelError for another number of them."""
    only_if(tensor.value is not None)
    if tensor.type.elements != 1:
        raise ModelError(f"a condition has {tensor.type.elements} elements")
    return int(np.asarray(tensor.value).reshape(-1)[0])


def _only_without_indices(node: OnnxNode) -> None:
    """An index may be valid in the branch that is taken only."""
    inner = (each.op_type for body in nested_graphs(node.proto) for each in body.node)
    only_if(not any(name.startswith(("Gather", "Scatter", "If", "Loop")) for name in inner))


@translates("Loop")
def loop(node: OnnxNode) -> Translated:
    """Loop → its turns one after the other, where it is known of each whether it is the last."""
    body, (limit, condition), state = node.body("body"), _loop_limits(node), list(node.inputs[2:])
    kept, before = [tensor for tensor in state if tensor is not None], len(node.builder.types)
    only_if(len(kept) == len(state) < len(body.output))
    turns: list[Sequence[Tensor]] = []
    for turn in count():
        if not condition or turn == limit:
            break
        node.builder.scope = f"{node.name}/{turn}"
        number, going_on = np.asarray(turn, np.int64), np.asarray(True)
        given = (node.constant(number), node.constant(going_on), *kept)
        results = node.inside(body, given, str(turn))
        condition = bool(_only_value(results[0]))
        kept = list(results[1 : 1 + len(kept)])
        turns.append(results[1 + len(kept) :])
        _require_few(node, before, turn + 1)
    return [*kept, *_stacked(node, turns, len(body.output) - 1 - len(kept))]


def _loop_limits(node: OnnxNode) -> tuple[int | None, bool]:
    """How many turns there are at most, None for no limit, and whether the first is made; only
    where both are known."""
    limit, condition = node.given(0), node.given(1)
    most = None if limit is None else max(0, _only_value(limit))
    return most, condition is None or bool(_only_value(condition))


@translates("Scan")
def scan(node: OnnxNode) -> Translated:
    """Scan → a turn for each element of the scanned axes."""
    body, scanned = node.body("body"), node.integer("num_scan_inputs", 0)
    given, before = node.several(len(node.inputs)), len(node.builder.types)
    only_if(0 <= len(given) - scanned <= len(body.output))
    state, sources = list(given[: len(given) - scanned]), given[len(given) - scanned :]
    axes = _listed(node, "scan_input_axes", scanned)
    places = [axis_of(axis, x.rank, node.name) for axis, x in zip(axes, sources, strict=True)]
    backward = _listed(node, "scan_input_directions", scanned)
    lengths = {x.shape[axis] for axis, x in zip(places, sources, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"the scanned axes have the lengths {sorted(lengths)}")
    (length,) = lengths
    turns: list[Sequence[Tensor]] = []
    for turn in range(length):
        node.builder.scope = f"{node.name}/{turn}"
        numbers = (length - 1 - turn if back else turn for back in backward)
        parts = [_part(x, *place) for x, *place in zip(sources, places, numbers, strict=True)]
        results = node.inside(body, (*state, *parts), str(turn))
        state = list(results[: len(state)])
        turns.append(results[len(state) :])
        _require_few(node, before, turn + 1)
    produced = len(body.output) - len(state)
    reverse = _listed(node, "scan_output_directions", produced)
    rows = [list(turn) for turn in turns]
    for place in (place for place, back in enumerate(reverse) if back):
        column = [row[place] for row in reversed(rows)]
        for row, tensor in zip(rows, column, strict=True):
            row[place] = tensor
    return [*state, *_stacked(node, rows, produced, _listed(node, "scan_output_axes", produced))]


def _listed(node: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    """An attribute of one integer for each of `count` tensors, zeros by default."""
    values = node.integers(name) or (0,) * count
    if len(values) != count:
        raise ModelError(f"{name} has {len(values)} entries for {count} tensors")
    return values


def _part(x: Tensor, axis: int, number: int) -> Tensor:
    """One element along an axis, which is gone then."""
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return x.cut({axis: slice(number, number + 1)}).reshape(rest)


def _stacked(
    node: OnnxNode, turns: Sequence[Sequence[Tensor]], count: int, axes: Iterable[int] = ()
) -> list[Tensor]:
    """What the turns produced, one behind the other along a new axis each, the first by default."""
    only_if(bool(turns) or not count)
    places = tuple(axes) or (0,) * count
    found: list[Tensor] = []
    for column, axis in enumerate(places):
        parts = [turn[column] for turn in turns]
        rank = parts[0].rank + 1
        place = axis_of(axis, rank, node.name)
        if len({part.type for part in parts}) > 1:
            raise ModelError("what its turns produce has different shapes")
        longer = [part.reshape((*part.shape[:place], 1, *part.shape[place:])) for part in parts]
        one = len(longer) == 1
        found.append(longer[0] if one else node.builder.emit("concat", *longer, axis=place))
    return found


def _require_few(node: OnnxNode, before: int, turns: int) -> None:
    if len(node.builder.types) - before > MOST_TENSORS:
        raise NotCompilable(
            f"after {turns} turns it is more than {MOST_TENSORS:,} tensors",
            hint="A loop is written out turn by turn: make it shorter, or cut the network there.",
        )
