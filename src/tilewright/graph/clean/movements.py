"""Merging data movements into each other and into what reads them."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.errors import ModelError
from tilewright.graph.clean.edit import Edit
from tilewright.graph.network import Graph, Node, attributes
from tilewright.graph.operators import OPERATORS
from tilewright.graph.operators.checks import integer, integers, number


def merge_movements(graph: Graph) -> Graph:
    """Merge equal movements that follow each other.

    before: reshape(reshape(x, s), t)            transpose(transpose(x, p), q)
    after:  reshape(x, t)                        transpose(x, p[q])

    A transposition that only moves axes of one becomes a reshape.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator == "reshape":
            inner = edit.producer(node.inputs[0], "reshape")
            if inner is not None:
                edit.rewire(node, inner.inputs)
        elif node.operator == "transpose":
            _merge_transpose(edit, node)
        elif node.operator == "expand":
            kind = edit.types[node.output]
            if edit.types[node.inputs[0]].elements == kind.elements:
                new = edit.node(
                    "reshape", node.inputs, name=node.name, output=node.output, shape=kind.shape
                )
                edit.replace(node, new)
    return edit.finish()


def _merge_transpose(edit: Edit, node: Node) -> None:
    order = integers(dict(node.attributes), "permutation")
    source = node.inputs[0]
    inner = edit.producer(source, "transpose")
    shape = edit.types[source].shape
    moved = [axis for axis in order if shape[axis] != 1]
    if inner is not None:
        first = integers(dict(inner.attributes), "permutation")
        merged = tuple(first[axis] for axis in order)
        new = edit.node(
            "transpose", inner.inputs, name=node.name, output=node.output, permutation=merged
        )
        edit.replace(node, new)
    elif moved == sorted(moved) and order != tuple(sorted(order)):
        target = edit.types[node.output].shape
        new = edit.node("reshape", node.inputs, name=node.name, output=node.output, shape=target)
        edit.replace(node, new)


def drop_expansions(graph: Graph) -> Graph:
    """Let elementwise operators broadcast by themselves.

    before: add(expand(x[8,1,1], [8,7,7]), y[8,7,7])
    after:  add(x[8,1,1], y[8,7,7])
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if not OPERATORS[node.operator].elementwise or len(node.inputs) < 2:
            continue
        inputs = list(node.inputs)
        for port, tensor in enumerate(node.inputs):
            inner = edit.producer(tensor, "expand")
            if inner is None:
                continue
            trial = [*inputs[:port], inner.inputs[0], *inputs[port + 1 :]]
            kinds = tuple(edit.types[name] for name in trial)
            try:
                result = OPERATORS[node.operator].infer(kinds, dict(node.attributes))
            except ModelError:
                continue
            if result == edit.types[node.output]:
                inputs = trial
        if tuple(inputs) != node.inputs:
            edit.rewire(node, inputs)
    return edit.finish()


def merge_padding(graph: Graph) -> Graph:
    """Let the operator behind a padding of height and width pad by itself.

    before: conv2d(pad(x, 0), padding=p)
    after:  conv2d(x, padding=p + pad)

    Maximum pooling takes a padding with -inf, or with 0 behind a relu when no window lies in the
    padding alone; average pooling one with 0 when it has no other padding, then counting it.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator not in ("conv2d", "max_pool2d", "avg_pool2d"):
            continue
        pad = edit.producer(node.inputs[0], "pad")
        if pad is None or pad.attribute("mode") != "constant":
            continue
        before = integers(dict(pad.attributes), "before")
        after = integers(dict(pad.attributes), "after")
        if len(before) != 4 or any((*before[:2], *after[:2])):
            continue
        named = dict(node.attributes)
        old = integers(named, "padding")
        padding = tuple(a + b for a, b in zip(old, (*before[2:], *after[2:]), strict=True))
        if not _may_pad(edit, node, pad, padding):
            continue
        named["padding"] = padding
        if node.operator == "avg_pool2d":
            named["count_include_pad"] = True
        inputs = (pad.inputs[0], *node.inputs[1:])
        edit.replace(node, replace(node, inputs=inputs, attributes=attributes(**named)))
    return edit.finish()


def _may_pad(edit: Edit, node: Node, pad: Node, padding: tuple[int, ...]) -> bool:
    value = number(dict(pad.attributes), "value")
    named = dict(node.attributes)
    old = integers(named, "padding")
    if node.operator == "conv2d":
        return value == 0
    if node.operator == "avg_pool2d":
        return value == 0 and (not any(old) or bool(named["count_include_pad"]))
    kernel = integers(named, "kernel")
    if integers(named, "dilation") != (1, 1) or any(
        p >= k for p, k in zip(padding, (*kernel, *kernel), strict=True)
    ):
        return False
    if value == float("-inf"):
        return True
    return value == 0 and edit.producer(pad.inputs[0], "relu") is not None


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
        place = -1 - integer(dict(node.attributes), "axis")
        shared, length = "", 0
        for count, tensor in enumerate(node.inputs, start=1):
            place = links.setdefault((place, tensor), len(links))
            if place in whole and count < len(node.inputs):
                shared, length = whole[place], count
        whole.setdefault(place, node.output)
        if length >= 2:
            inputs = (shared, *node.inputs[length:])
            edit.rewire(node, inputs)
    return edit.finish()
