"""Recognising operators that exporters write as several."""

from __future__ import annotations

from math import isclose, prod, sqrt
from typing import Any

import numpy as np

from tilewright.graph.clean.edit import Edit
from tilewright.graph.network import Graph, Node
from tilewright.graph.operators.checks import broadcast, integer, integers, number


def recognize_activations(graph: Graph) -> Graph:
    """Recognise activations that are products of their input.

    before: x * sigmoid(x)    x * hard_sigmoid(x)    x * 0.5 * (1 + erf(x / sqrt(2)))
    after:  silu(x)           hard_swish(x)          gelu(x)

    The factors may come in any order; `x * clip(x + 3, 0, 6) / 6` is `hard_swish` too.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator != "multiply":
            continue
        scale, factors = _factors(edit, node, depth=3)
        if len(factors) != 2:
            continue
        for x, other in (factors, factors[::-1]):
            name = _activation(edit, x, other, scale)
            if name is not None and edit.types[x] == edit.types[node.output]:
                edit.replace(node, edit.node(name, (x,), name=node.name, output=node.output))
                break
    return edit.finish()


def _factors(edit: Edit, node: Node, *, depth: int) -> tuple[float, list[str]]:
    """Constant factor and other factors of a product, through products only it reads."""
    scale, factors = 1.0, list[str]()
    for tensor in node.inputs:
        value = edit.scalar(tensor)
        inner = edit.producer(tensor, "multiply") if depth and edit.read_once(tensor) else None
        if value is not None:
            scale *= value
        elif inner is not None:
            more, deeper = _factors(edit, inner, depth=depth - 1)
            scale, factors = scale * more, factors + deeper
        else:
            factors.append(tensor)
    return scale, factors


def _activation(edit: Edit, x: str, other: str, scale: float) -> str | None:
    sigmoid = edit.producer(other, "sigmoid")
    if sigmoid is not None and sigmoid.inputs[0] == x and scale == 1:
        return "silu"
    hard = edit.producer(other, "hard_sigmoid")
    if hard is not None and hard.inputs[0] == x and scale == 1:
        named = dict(hard.attributes)
        if _near(number(named, "alpha"), 1 / 6) and _near(number(named, "beta"), 0.5):
            return "hard_swish"
    clip = edit.producer(other, "clip")
    if clip is not None and _near(scale, 1 / 6):
        named = dict(clip.attributes)
        limits = number(named, "minimum"), number(named, "maximum")
        if limits == (0, 6) and _shifted(edit, clip.inputs[0], 3.0) == x:
            return "hard_swish"
    erf = edit.producer(_shifted(edit, other, 1.0) or "", "erf")
    if erf is not None and _near(scale, 0.5) and _over_root_two(edit, erf.inputs[0]) == x:
        return "gelu"
    return None


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and isclose(value, wanted, rel_tol=2e-6)


def _shifted(edit: Edit, tensor: str, shift: float) -> str | None:
    """x of `x + shift`."""
    node = edit.producer(tensor, "add")
    if node is not None:
        for x, c in (node.inputs, node.inputs[::-1]):
            if edit.scalar(c) == shift:
                return x
    return None


def _over_root_two(edit: Edit, tensor: str) -> str | None:
    quotient = edit.producer(tensor, "divide")
    if quotient is not None and _near(edit.scalar(quotient.inputs[1]), sqrt(2)):
        return quotient.inputs[0]
    product = edit.producer(tensor, "multiply")
    if product is not None:
        for x, c in (product.inputs, product.inputs[::-1]):
            if _near(edit.scalar(c), sqrt(0.5)):
                return x
    return None


def recognize_layer_norm(graph: Graph) -> Graph:
    """Recognise a layer norm written out.

    before: d = x - mean(x); d / sqrt(mean(d * d) + epsilon)
    after:  layer_norm(x, 1, 0)
    """
    edit = Edit(graph)
    for node in graph.nodes:
        found = _normalized(edit, node)
        centred = None if found is None else edit.producer(found[0], "subtract")
        if found is None or centred is None:
            continue
        x, mean = centred.inputs
        axes = _mean_axes(edit, mean, x)
        squares = edit.producer(found[1], "reduce_mean")
        if axes is None or squares is None or _mean_axes(edit, found[1]) != axes:
            continue
        square = edit.producer(squares.inputs[0], "multiply")
        if square is None or square.inputs != (centred.output, centred.output):
            continue
        kind = edit.types[x]
        if kind != edit.types[node.output]:
            continue
        part = kind.shape[axes[0] :]
        scale = edit.constant(f"{node.name}.scale", np.ones(part, kind.dtype))
        bias = edit.constant(f"{node.name}.bias", np.zeros(part, kind.dtype))
        new = edit.node(
            "layer_norm",
            (x, scale, bias),
            name=node.name,
            output=node.output,
            axis=axes[0],
            epsilon=found[2],
        )
        edit.replace(node, new)
    return edit.finish()


def _normalized(edit: Edit, node: Node) -> tuple[str, str, float] | None:
    """(d, v, epsilon) of `d / sqrt(v + epsilon)`, also written with a reciprocal root."""
    if node.operator == "divide":
        root = edit.producer(node.inputs[1], "sqrt")
        return None if root is None else _shifted_variance(edit, node.inputs[0], root)
    if node.operator == "multiply":
        for centred, factor in (node.inputs, node.inputs[::-1]):
            inverse = edit.producer(factor, "reciprocal")
            root = edit.producer(inverse.inputs[0], "sqrt") if inverse else None
            root = root or edit.producer(factor, "rsqrt")
            if root is not None:
                return _shifted_variance(edit, centred, root)
    return None


def _shifted_variance(edit: Edit, centred: str, root: Node) -> tuple[str, str, float] | None:
    total = edit.producer(root.inputs[0], "add")
    if total is not None:
        for variance, c in (total.inputs, total.inputs[::-1]):
            epsilon = edit.scalar(c)
            if epsilon is not None:
                return centred, variance, epsilon
    return None


def _mean_axes(edit: Edit, tensor: str, source: str | None = None) -> tuple[int, ...] | None:
    """The axes of a mean over the last axes that keeps them."""
    node = edit.producer(tensor, "reduce_mean")
    if node is None or (source is not None and node.inputs[0] != source):
        return None
    named = dict(node.attributes)
    axes, rank = integers(named, "axes"), len(edit.types[node.inputs[0]].shape)
    last = bool(axes) and axes == tuple(range(axes[0], rank))
    return axes if last and named["keepdims"] else None


def fold_layer_norm(graph: Graph) -> Graph:
    """Fold a constant scale or shift behind a layer norm into it.

    before: layer_norm(x, s, b) * c         layer_norm(x, s, b) + c
    after:  layer_norm(x, s * c, b * c)     layer_norm(x, s, b + c)
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator not in ("multiply", "add"):
            continue
        for tensor, c in (node.inputs, node.inputs[::-1]):
            norm = edit.producer(tensor, "layer_norm")
            if norm is not None and c in edit.constants and edit.read_once(tensor):
                _fold_into_norm(edit, node, norm, c)
                break
    return edit.finish()


def _fold_into_norm(edit: Edit, node: Node, norm: Node, constant: str) -> None:
    x, scale, bias = norm.inputs
    kind, axis = edit.types[x], integer(dict(norm.attributes), "axis")
    part, c = kind.shape[axis:], edit.constants[constant]
    lead, rest = c.shape[: max(0, c.ndim - len(part))], c.shape[max(0, c.ndim - len(part)) :]
    known = scale in edit.constants and bias in edit.constants
    if not known or kind != edit.types[node.output] or prod(lead) != 1:
        return
    if broadcast("layer_norm", (part, rest)) != part:
        return
    value: Any = c.reshape(rest)
    s: Any = edit.constants[scale]
    b: Any = edit.constants[bias]
    if node.operator == "multiply":
        scale = edit.constant(f"{scale}.scaled", np.asarray(np.broadcast_to(s * value, part)))
        bias = edit.constant(f"{bias}.scaled", np.asarray(np.broadcast_to(b * value, part)))
    else:
        bias = edit.constant(f"{bias}.shifted", np.asarray(np.broadcast_to(b + value, part)))
    edit.replace(node, edit.rewritten(norm, (x, scale, bias), node.output))


def simplify_products(graph: Graph) -> Graph:
    """Fit matrix products to what the second operand is.

    before: batch_matmul(a, transpose(b, last two axes))     batch_matmul(a, constant w[K,N])
    after:  batch_matmul(a, b, transpose_b)                  dense(a, w)
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if node.operator != "batch_matmul":
            continue
        a, b = node.inputs
        swapped = bool(node.attribute("transpose_b"))
        array = edit.constants.get(b)
        inner = edit.producer(b, "transpose")
        if array is not None and prod(array.shape[:-2]) == 1:
            if array.ndim > len(edit.types[a].shape):
                continue
            matrix: Any = array.reshape(array.shape[-2:])
            plain = np.ascontiguousarray(matrix.T) if swapped else matrix
            weight = edit.constant(f"{b}.matrix", plain)
            edit.replace(node, edit.node("dense", (a, weight), name=node.name, output=node.output))
        elif inner is not None and _swaps_last(integers(dict(inner.attributes), "permutation")):
            new = edit.node(
                "batch_matmul",
                (a, inner.inputs[0]),
                name=node.name,
                output=node.output,
                transpose_b=not swapped,
            )
            edit.replace(node, new)
    return edit.finish()


def _swaps_last(order: tuple[int, ...]) -> bool:
    rank = len(order)
    return order == (*range(rank - 2), rank - 1, rank - 2)
