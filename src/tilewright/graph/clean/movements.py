"""Merging data movements into each other and into what reads them, and moving reshapes behind the
work that does not mind them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.clean.edit import Edit, found, only_if, rewrite
from tilewright.graph.network import Graph, Node, TensorType, attributes
from tilewright.graph.operators import OPERATORS


@rewrite("reshape", "transpose", "expand")
def merge_movements(edit: Edit, node: Node) -> None:
    """Merge equal movements that follow each other.

    before: reshape(reshape(x, s), t)            transpose(transpose(x, p), q)
    after:  reshape(x, t)                        transpose(x, p[q])

    A transposition that only moves axes of one becomes a reshape, as does an expansion to as many
    elements.
    """
    source, target = edit.types[node.inputs[0]], edit.types[node.output]
    inner = edit.producer(node.inputs[0], node.operator)
    if node.operator == "reshape":
        edit.rewire(node, node.inputs if inner is None else inner.inputs)
    elif node.operator == "expand":
        if source.elements == target.elements:
            edit.turn(node, "reshape", node.inputs, shape=target.shape)
    else:
        order = node.integers("permutation")
        moved = [axis for axis in order if source.shape[axis] != 1]
        if inner is not None:
            first = inner.integers("permutation")
            merged = tuple(first[axis] for axis in order)
            edit.turn(node, "transpose", inner.inputs, permutation=merged)
        elif moved == sorted(moved) and order != tuple(sorted(order)):
            edit.turn(node, "reshape", node.inputs, shape=target.shape)


@rewrite()
def drop_expansions(edit: Edit, node: Node) -> None:
    """Let elementwise operators broadcast by themselves.

    before: add(expand(x[8,1,1], [8,7,7]), y[8,7,7])
    after:  add(x[8,1,1], y[8,7,7])
    """
    operator = OPERATORS[node.operator]
    only_if(operator.elementwise and len(node.inputs) > 1)
    inputs = node.inputs
    for port, tensor in enumerate(node.inputs):
        inner = edit.producer(tensor, "expand")
        if inner is None:
            continue
        trial = (*inputs[:port], inner.inputs[0], *inputs[port + 1 :])
        try:
            result = operator.infer(tuple(edit.types[name] for name in trial), node.named)
        except ModelError:
            continue
        if result == edit.types[node.output]:
            inputs = trial
    edit.rewire(node, inputs)


@rewrite("where")
def recognize_cache_writes(edit: Edit, node: Node) -> None:
    """Recognise a new row of a cache that is an input and becomes an output, chosen by its place.

    before: where(equal([[0],[1],[2],[3]], place[1]), row[1,8], cache[4,8])
    after:  cache_write(cache[4,8], row[1,8], place[1], axis=0)
    """
    chosen, row, cache = node.inputs
    kind, new = edit.types[cache], edit.types[row].shape
    only_if(cache in edit.graph.inputs and node.output in edit.outputs)
    only_if(kind == edit.types[node.output])
    places = found(edit.producer(chosen, "equal")).inputs
    place, every = sorted(places, key=lambda name: name in edit.constants)
    slots = found(edit.constants.get(every))
    fits = edit.types[place].elements == 1 and slots.ndim <= len(kind.shape) == len(new)
    only_if(fits and slots.size == max(slots.shape, default=1) > 1)
    axis = len(kind.shape) - slots.ndim + slots.shape.index(slots.size)
    only_if((*kind.shape[:axis], 1, *kind.shape[axis + 1 :]) == new)
    counted = np.array_equal(slots.reshape(-1), np.arange(kind.shape[axis]))
    only_if(counted and edit.types[place].dtype in ("int32", "int64"))
    edit.turn(node, "cache_write", (cache, row, place), axis=axis)


@rewrite("conv2d", "max_pool2d", "avg_pool2d")
def merge_padding(edit: Edit, node: Node) -> None:
    """Let the operator behind a padding of height and width pad by itself.

    before: conv2d(pad(x, 0), padding=p)
    after:  conv2d(x, padding=p + pad)

    Maximum pooling takes a padding with -inf, or with 0 behind a relu when no window lies in the
    padding alone; average pooling one with 0 when it has no other padding, then counting it.
    """
    pad = found(edit.producer(node.inputs[0], "pad"))
    before, after = pad.integers("before"), pad.integers("after")
    only_if(pad.attribute("mode") == "constant" and len(before) == 4)
    only_if(not any((*before[:2], *after[:2])))
    named, added = node.named, (*before[2:], *after[2:])
    padding = tuple(a + b for a, b in zip(node.integers("padding"), added, strict=True))
    if _may_pad(edit, node, pad, padding):
        named["padding"] = padding
        if node.operator == "avg_pool2d":
            named["count_include_pad"] = True
        inputs = (pad.inputs[0], *node.inputs[1:])
        edit.replace(node, replace(node, inputs=inputs, attributes=attributes(**named)))


def _may_pad(edit: Edit, node: Node, pad: Node, padding: tuple[int, ...]) -> bool:
    value = pad.number("value")
    if node.operator == "conv2d":
        return value == 0
    if node.operator == "avg_pool2d":
        unpadded = not any(node.integers("padding"))
        return value == 0 and (unpadded or bool(node.attribute("count_include_pad")))
    inside = all(p < k for p, k in zip(padding, node.integers("kernel") * 2, strict=True))
    lowest = 0 if edit.producer(pad.inputs[0], "relu") else float("-inf")
    fits = value in (lowest, float("-inf"))
    return fits and inside and node.integers("dilation") == (1, 1)


def share_concatenations(graph: Graph) -> Graph:
    """Build longer concatenations on shorter ones, so that growing lists take linear work.

    before: u = concat(a, b, c); v = concat(a, b, c, d)
    after:  u = concat(a, b, c); v = concat(u, d)
    """
    edit = Edit(graph)
    links: dict[tuple[int, str], int] = {}
    whole: dict[int, str] = {}
    for node in graph.nodes:
        if node.operator != "concat" or len(node.inputs) < 2:
            continue
        place = -1 - node.integer("axis")
        shared, length = "", 0
        for count, tensor in enumerate(node.inputs, start=1):
            place = links.setdefault((place, tensor), len(links))
            if place in whole and count < len(node.inputs):
                shared, length = whole[place], count
        whole.setdefault(place, node.output)
        if length >= 2:
            edit.rewire(node, (shared, *node.inputs[length:]))
    return edit.finish()


@rewrite("concat")
def join_whole(edit: Edit, node: Node) -> None:
    """Join a tensor instead of all its slices one behind the other.

    before: concat(x[:, :8], x[:, 8:], y)
    after:  concat(x, y)
    """
    axis, runs = node.integer("axis"), list[tuple[str, int, tuple[str, ...]]]()
    for tensor in node.inputs:
        source, start, stop = _cut(edit, tensor, axis)
        if runs and runs[-1][:2] == (source, start) and start:
            runs[-1] = (source, stop, (*runs[-1][2], tensor))
        else:
            runs.append((source if start == 0 else tensor, stop, (tensor,)))
    joined: list[str] = []
    for source, stop, parts in runs:
        whole = len(parts) > 1 and stop == edit.types[source].shape[axis]
        joined += [source] if whole else parts
    edit.rewire(node, joined)


def _cut(edit: Edit, tensor: str, axis: int) -> tuple[str, int, int]:
    """What a tensor is cut from along an axis, its begin and its end there; all of itself where it
    is cut otherwise or not at all."""
    node, shape = edit.producer(tensor, "slice"), edit.types[tensor].shape
    if node is not None and set(node.integers("steps")) == {1}:
        source = edit.types[node.inputs[0]].shape
        if all(a == b for at, (a, b) in enumerate(zip(source, shape, strict=True)) if at != axis):
            return node.inputs[0], node.integers("starts")[axis], node.integers("stops")[axis]
    return tensor, 0, shape[axis]


@rewrite()
def sink_reshapes(edit: Edit, node: Node) -> None:
    """Move reshapes that keep the last axis behind dense layers, and behind elementwise operators.

    before: relu(dense(reshape(x[2,5,8], [10,8]), w) + b)
    after:  reshape(relu(dense(x[2,5,8], w) + b), [10,n])

    They then meet the reshape back and vanish, and what they kept apart can be fused. Elementwise
    operators let them pass when their other operands are single constants or constants along the
    last axis. A reshape behind another movement stays: the two merge.
    """
    dense = node.operator == "dense"
    data = [port for port, name in enumerate(node.inputs) if name not in edit.constants]
    only_if(dense or (OPERATORS[node.operator].elementwise and len(data) == 1))
    port = 0 if dense else data[0]
    reshape = found(edit.producer(node.inputs[port], "reshape"))
    only_if(edit.read_once(reshape.output))
    source = reshape.inputs[0]
    before = edit.producers.get(source)
    moved = before is not None and OPERATORS[before.operator].movement
    if not moved and _indifferent(edit, node, port, edit.types[source]):
        inputs = (*node.inputs[:port], source, *node.inputs[port + 1 :])
        new = edit.rewritten(node, inputs)
        edit.turn(node, "reshape", (new.output,), [new], shape=edit.types[node.output].shape)


def _indifferent(edit: Edit, node: Node, port: int, source: TensorType) -> bool:
    """Whether the node may run on the unreshaped tensor."""
    reshaped = edit.types[node.inputs[port]]
    same_last = source.shape[-1:] == reshaped.shape[-1:] != ()
    if node.operator == "dense":
        return same_last and node.inputs[1] in edit.constants
    others = [edit.types[name].shape for i, name in enumerate(node.inputs) if i != port]
    return edit.types[node.output].shape == reshaped.shape and all(
        len(shape) <= len(source.shape)
        and (prod(shape) == 1 or (same_last and prod(shape[:-1]) == 1))
        for shape in others
    )
