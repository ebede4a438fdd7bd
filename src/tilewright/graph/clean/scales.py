"""Constant scales and shifts: merged with each other and into weights."""

from __future__ import annotations

from dataclasses import replace
from math import frexp
from typing import Any

import numpy as np

from tilewright.graph.clean.edit import Edit
from tilewright.graph.network import Graph, Node
from tilewright.graph.operators.checks import integer

_WEIGHTED = ("conv2d", "conv2d_transpose", "dense")


def normalize_arithmetic(graph: Graph) -> Graph:
    """Write constant arithmetic as multiplications and additions, small powers as products.

    before: x - c      x / c          x ** 2     x ** 3         x ** 0.5
    after:  x + (-c)   x * (1 / c)    x * x      (x * x) * x    sqrt(x)

    A quotient that is rounded next, as in quantization, stays one unless 1 / c is exact: another
    last bit may give another code.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator not in ("subtract", "divide", "power"):
            continue
        if edit.types[node.output].dtype not in ("float16", "float32", "float64"):
            continue
        x, c = node.inputs
        value: Any = edit.constants.get(c)
        if value is None or x in edit.constants:
            continue
        if node.operator == "subtract":
            shift = edit.constant(f"{c}.negative", np.asarray(-value))
            edit.replace(node, edit.node("add", (x, shift), name=node.name, output=node.output))
        elif node.operator == "divide":
            with np.errstate(all="ignore"):
                inverse = np.asarray((1 / value.astype(np.float64)).astype(value.dtype))
            exact = bool((np.frexp(value)[0] == 0.5).all())
            if not exact and edit.read_by(node.output, "round"):
                continue
            if np.isfinite(value).all() and np.isfinite(inverse).all() and inverse.all():
                scale = edit.constant(f"{c}.inverse", inverse)
                new = edit.node("multiply", (x, scale), name=node.name, output=node.output)
                edit.replace(node, new)
        elif edit.types[x] == edit.types[node.output]:
            _expand_power(edit, node, edit.scalar(c))
    return edit.finish()


def _expand_power(edit: Edit, node: Node, exponent: float | None) -> None:
    x, output, name = node.inputs[0], node.output, node.name
    unary = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
    if exponent == 2:
        edit.replace(node, edit.node("multiply", (x, x), name=name, output=output))
    elif exponent == 3:
        square = edit.node("multiply", (x, x), name=f"{name}.square")
        cube = edit.node("multiply", (square.output, x), name=name, output=output)
        edit.replace(node, square, cube)
    elif exponent in unary:
        edit.replace(node, edit.node(unary[exponent], (x,), name=name, output=output))


def merge_arithmetic(graph: Graph) -> Graph:
    """Merge constant scales that follow each other, and constant shifts.

    before: (x * a) * b      (x + a) + b      (x * a + b) * c
    after:  x * (a * b)      x + (a + b)      x * (a * c) + b * c
    """
    edit = Edit(graph)
    for node in graph.nodes:
        outer = _with_constant(edit, node, node.operator)
        if outer is None or node.operator not in ("multiply", "add"):
            continue
        if not edit.read_once(outer[0]):
            continue
        inner = edit.producer(outer[0], node.operator)
        deep = None if inner is None else _with_constant(edit, inner, node.operator)
        if deep is not None:
            merged = _combined(edit, node.operator, deep[1], outer[1])
            if merged is not None:
                edit.rewire(node, (deep[0], merged))
        elif node.operator == "multiply":
            _merge_affine(edit, node, outer)
    return edit.finish()


def _merge_affine(edit: Edit, node: Node, outer: tuple[str, str]) -> None:
    shift = edit.producer(outer[0], "add")
    shifted = None if shift is None else _with_constant(edit, shift, "add")
    if shifted is None or not edit.read_once(shifted[0]):
        return
    scale = edit.producer(shifted[0], "multiply")
    scaled = None if scale is None else _with_constant(edit, scale, "multiply")
    if scale is None or scaled is None:
        return
    factor = _combined(edit, "multiply", scaled[1], outer[1])
    bias = None if factor is None else _combined(edit, "multiply", shifted[1], outer[1])
    if factor is None or bias is None:
        return
    product = edit.rewritten(scale, (scaled[0], factor))
    new = edit.node("add", (product.output, bias), name=node.name, output=node.output)
    edit.replace(node, product, new)


def _combined(edit: Edit, operator: str, first: str, second: str) -> str | None:
    """The sum or product of two constants, unless it grows or leaves the type's range."""
    a: Any = edit.constants[first].astype(np.float64)
    b: Any = edit.constants[second].astype(np.float64)
    if np.broadcast(a, b).size > max(a.size, b.size):
        return None
    dtype = edit.constants[second].dtype
    merged: Any = a * b if operator == "multiply" else a + b
    if not _keeps(merged, dtype):
        return None
    return edit.constant(f"{second}.merged", np.asarray(merged, dtype))


def distribute_scales(graph: Graph) -> Graph:
    """Merge a power of two behind a sum of scaled values into both scales, which is exact.

    before: (x * a + y * b) * c
    after:  x * (a * c) + y * (b * c)

    This is how two tensors of codes are added.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        outer = _with_constant(edit, node, "multiply")
        factor = None if outer is None else edit.scalar(outer[1])
        total = None if outer is None else edit.producer(outer[0], "add")
        if outer is None or total is None or factor is None or not edit.read_once(outer[0]):
            continue
        if abs(frexp(factor)[0]) != 0.5 or total.inputs[0] == total.inputs[1]:
            continue
        scaled = [_scaled_term(edit, tensor, outer[1]) for tensor in total.inputs]
        first, second = scaled
        if first is None or second is None:
            continue
        inputs = first.output, second.output
        new = edit.node("add", inputs, name=total.name, output=node.output)
        edit.replace(node, first, second, new)
    return edit.finish()


def _scaled_term(edit: Edit, tensor: str, factor: str) -> Node | None:
    """A product with a constant, times one more factor."""
    product = edit.producer(tensor, "multiply")
    parts = None if product is None else _with_constant(edit, product, "multiply")
    if product is None or parts is None or not edit.read_once(tensor):
        return None
    merged = _combined(edit, "multiply", factor, parts[1])
    return None if merged is None else edit.rewritten(product, (parts[0], merged))


def fold_scales(graph: Graph) -> Graph:
    """Fold scales per channel behind a convolution or dense layer into its weight.

    before: conv2d(x, w) * s              (conv2d(x, w) + b) * s + t
    after:  conv2d(x, w * s)              conv2d(x, w * s) + (b * s + t)

    This is how batch norms go. Scales before a convolution stay.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator != "multiply":
            continue
        pair = _with_constant(edit, node, "multiply")
        if pair is None or not edit.read_once(pair[0]):
            continue
        shift = edit.producer(pair[0], "add")
        parts = None if shift is None else _with_constant(edit, shift, "add")
        if parts is not None and edit.read_once(parts[0]):
            _scale_shifted(edit, node, pair[1], parts)
            continue
        weighted = _weighted(edit, pair[0])
        if weighted is None:
            continue
        weight = _scaled_weight(edit, weighted, pair[1], name=f"{weighted.inputs[1]}.scaled")
        if weight is not None:
            inputs = weighted.inputs[0], weight
            edit.replace(node, edit.rewritten(weighted, inputs, node.output))
    return edit.finish()


def _scale_shifted(edit: Edit, node: Node, scale: str, parts: tuple[str, str]) -> None:
    source, shift = parts
    weighted = _weighted(edit, source)
    if weighted is None:
        return
    channels = _per_channel(edit, weighted, shift), _per_channel(edit, weighted, scale)
    weight = _scaled_weight(edit, weighted, scale, name=f"{weighted.inputs[1]}.scaled")
    if weight is None or channels[0] is None or channels[1] is None:
        return
    dtype = edit.constants[shift].dtype
    factor: Any = edit.constants[scale]
    product: Any = edit.constants[shift].astype(np.float64) * factor
    if not _keeps(product, dtype):
        return
    bias = edit.constant(f"{shift}.scaled", np.asarray(product, dtype))
    scaled = edit.rewritten(weighted, (weighted.inputs[0], weight))
    scaled = replace(scaled, name=weighted.name)
    new = edit.node("add", (scaled.output, bias), name=node.name, output=node.output)
    edit.replace(node, scaled, new)


def _with_constant(edit: Edit, node: Node, operator: str) -> tuple[str, str] | None:
    """(data, constant) of a commutative operator on floats whose result has the data's type."""
    if node.operator != operator or len(node.inputs) != 2 or len(node.outputs) != 1:
        return None
    data, constant = node.inputs
    if data in edit.constants:
        data, constant = constant, data
    if constant not in edit.constants or data in edit.constants:
        return None
    kind = edit.types[data]
    floats = kind.dtype in ("float16", "float32", "float64")
    return (data, constant) if floats and kind == edit.types[node.output] else None


def _weighted(edit: Edit, tensor: str) -> Node | None:
    for operator in _WEIGHTED:
        node = edit.producer(tensor, operator)
        if node is not None and node.inputs[1] in edit.constants:
            return node
    return None


def _per_channel(edit: Edit, weighted: Node, constant: str) -> Any:
    """The constant as a vector over output channels (or of one element), else None."""
    array: Any = edit.constants[constant].astype(np.float64)
    rank = len(edit.types[weighted.output].shape)
    axis = rank - 1 if weighted.operator == "dense" else 1
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for i, size in enumerate(shape) if i != axis):
        return None
    return array.reshape(-1)


def _scaled_weight(edit: Edit, weighted: Node, constant: str, *, name: str) -> str | None:
    scale = _per_channel(edit, weighted, constant)
    if scale is None:
        return None
    weight: Any = edit.constants[weighted.inputs[1]]
    wide = weight.astype(np.float64)
    if weighted.operator == "dense":
        product = wide * scale
    elif weighted.operator == "conv2d":
        product = wide * scale.reshape(-1, 1, 1, 1)
    else:
        groups = integer(dict(weighted.attributes), "groups")
        _, per_group, *kernel = weight.shape
        spread = scale if scale.size == 1 else scale.reshape(groups, 1, per_group, 1, 1)
        product = (wide.reshape(groups, -1, per_group, *kernel) * spread).reshape(weight.shape)
    if not _keeps(product, weight.dtype):
        return None
    return edit.constant(name, np.asarray(product, weight.dtype))


def _keeps(value: Any, dtype: Any) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.asarray(value).astype(dtype)).all())
