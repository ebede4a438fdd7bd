"""Recognising operators that exporters write as several."""

from __future__ import annotations

from itertools import pairwise
from math import isclose, prod, sqrt
from typing import Any

import numpy as np

from tilewright.graph.clean.edit import Edit, NotApplicable, found, only_if, rewrite
from tilewright.graph.network import Node
from tilewright.graph.operators import OPERATORS
from tilewright.graph.operators.base import broadcast

_NARROWEST = 64
"""Columns of a part of a dense layer: fewer are not worth a task."""


@rewrite("multiply")
def recognize_activations(edit: Edit, node: Node) -> None:
    """Recognise activations that are products of their input.

    before: x * sigmoid(x)    x * hard_sigmoid(x)    x * 0.5 * (1 + erf(x / sqrt(2)))
    after:  silu(x)           hard_swish(x)          gelu(x)

    The factors may come in any order; `x * clip(x + 3, 0, 6) / 6` is `hard_swish` too.
    """
    scale, factors = _factors(edit, node, depth=3)
    only_if(len(factors) == 2)
    for x, other in (factors, factors[::-1]):
        name = _activation(edit, x, other, scale)
        if name is not None and edit.types[x] == edit.types[node.output]:
            edit.turn(node, name, (x,))
            break


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
    """What `scale * x * other` is, if it is one operator."""
    gate = edit.producer(other, "sigmoid", "hard_sigmoid", "clip", "add")
    if gate is None:
        return None
    if gate.operator == "sigmoid":
        return "silu" if gate.inputs[0] == x and scale == 1 else None
    if gate.operator == "hard_sigmoid":
        usual = _near(gate.number("alpha"), 1 / 6) and _near(gate.number("beta"), 0.5)
        return "hard_swish" if usual and gate.inputs[0] == x and scale == 1 else None
    if gate.operator == "clip":
        usual = (gate.number("minimum"), gate.number("maximum")) == (0, 6) and _near(scale, 1 / 6)
        return "hard_swish" if usual and _operand(edit, gate.inputs[0], "add", 3.0) == x else None
    erf = edit.producer(_operand(edit, other, "add", 1.0), "erf")
    if erf is None or not _near(scale, 0.5):
        return None
    quotient = edit.producer(erf.inputs[0], "divide")
    if quotient is not None and _near(edit.scalar(quotient.inputs[1]), sqrt(2)):
        return "gelu" if quotient.inputs[0] == x else None
    return "gelu" if _operand(edit, erf.inputs[0], "multiply", sqrt(0.5)) == x else None


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and isclose(value, wanted, rel_tol=2e-6)


def _operand(edit: Edit, tensor: str, operator: str, constant: float) -> str | None:
    """x of a tensor that is `x + constant`, or `x * constant`, in any order."""
    node = edit.producer(tensor, operator)
    pairs = (node.inputs, node.inputs[::-1]) if node else ()
    return next((x for x, c in pairs if _near(edit.scalar(c), constant)), None)


@rewrite("divide", "multiply")
def recognize_layer_norm(edit: Edit, node: Node) -> None:
    """Recognise a layer norm written out, and one by the root of the mean square.

    before: d = x - mean(x); d / sqrt(mean(d * d) + epsilon)        x / sqrt(mean(x * x) + epsilon)
    after:  layer_norm(x, 1, 0)                                     rms_norm(x, 1)
    """
    centred, root = _quotient(edit, node)
    difference = edit.producer(centred, "subtract")
    total = found(edit.producer(root.inputs[0], "add"))
    kind = edit.types[centred]
    for variance, c in (total.inputs, total.inputs[::-1]):
        epsilon, squares = edit.scalar(c), edit.producer(variance, "reduce_mean")
        square = None if squares is None else edit.producer(squares.inputs[0], "multiply")
        axes = _mean_axes(edit, variance)
        squared = square is not None and square.inputs == (centred, centred)
        if epsilon is None or axes is None or not squared or kind != edit.types[node.output]:
            continue
        axis, part = axes[0], kind.shape[axes[0] :]
        scale = edit.constant(f"{node.name}.scale", np.ones(part, kind.dtype))
        x, mean = (centred, "") if difference is None else difference.inputs
        if mean and edit.types[x] == kind and _mean_axes(edit, mean, x) == axes:
            bias = edit.constant(f"{node.name}.bias", np.zeros(part, kind.dtype))
            edit.turn(node, "layer_norm", (x, scale, bias), axis=axis, epsilon=epsilon)
        else:
            edit.turn(node, "rms_norm", (centred, scale), axis=axis, epsilon=epsilon)
        break


def _quotient(edit: Edit, node: Node) -> tuple[str, Node]:
    """d of `d / sqrt(s)`, also written with a reciprocal root, and the node of the root."""
    if node.operator == "divide":
        return node.inputs[0], found(edit.producer(node.inputs[1], "sqrt"))
    for centred, factor in (node.inputs, node.inputs[::-1]):
        inverse = edit.producer(factor, "reciprocal")
        root = edit.producer(inverse.inputs[0], "sqrt") if inverse else None
        root = root or edit.producer(factor, "rsqrt")
        if root is not None:
            return centred, root
    raise NotApplicable


def _mean_axes(edit: Edit, tensor: str, source: str | None = None) -> tuple[int, ...] | None:
    """The axes of a mean over the last axes that keeps them."""
    node = edit.producer(tensor, "reduce_mean")
    if node is None or (source is not None and node.inputs[0] != source):
        return None
    axes, rank = node.integers("axes"), len(edit.types[node.inputs[0]].shape)
    last = bool(axes) and axes == tuple(range(axes[0], rank))
    return axes if last and node.attribute("keepdims") else None


@rewrite("multiply", "add")
def fold_layer_norm(edit: Edit, node: Node) -> None:
    """Fold a constant scale or shift behind a norm into it, if it has one.

    before: layer_norm(x, s, b) * c         layer_norm(x, s, b) + c
    after:  layer_norm(x, s * c, b * c)     layer_norm(x, s, b + c)
    """
    for tensor, c in (node.inputs, node.inputs[::-1]):
        norm = edit.producer(tensor, "layer_norm", "rms_norm")
        if norm is not None and c in edit.constants and edit.read_once(tensor):
            _fold_into_norm(edit, node, norm, edit.constants[c])
            break


def _fold_into_norm(edit: Edit, node: Node, norm: Node, c: Any) -> None:
    x, *parts = norm.inputs
    kind = edit.types[x]
    part = kind.shape[norm.integer("axis") :]
    rest = c.shape[max(0, c.ndim - len(part)) :]
    only_if(kind == edit.types[node.output] and prod(rest) == c.size)
    only_if(broadcast((part, rest)) == part)
    value: Any = c.reshape(rest)
    arrays: list[Any] = [found(edit.constants.get(name)) for name in parts]
    if node.operator == "multiply":
        arrays = [array * value for array in arrays]
    else:
        only_if(len(arrays) == 2)
        arrays[1] = arrays[1] + value
    folded = [
        edit.constant(f"{name}.folded", np.asarray(np.broadcast_to(array, part)))
        for name, array in zip(parts, arrays, strict=True)
    ]
    edit.replace(node, edit.rewritten(norm, (x, *folded), node.output))


@rewrite("batch_matmul")
def simplify_products(edit: Edit, node: Node) -> None:
    """Fit matrix products to what the second operand is.

    before: batch_matmul(a, transpose(b, last two axes))     batch_matmul(a, constant w[K,N])
    after:  batch_matmul(a, b, transpose_b)                  dense(a, w)
    """
    a, b = node.inputs
    swapped = bool(node.attribute("transpose_b"))
    array: Any = edit.constants.get(b)
    inner = edit.producer(b, "transpose")
    if array is not None and prod(array.shape[:-2]) == 1:
        if array.ndim <= len(edit.types[a].shape):
            matrix = array.reshape(array.shape[-2:])
            matrix = np.ascontiguousarray(matrix.T) if swapped else matrix
            edit.turn(node, "dense", (a, edit.constant(f"{b}.matrix", matrix)))
    elif inner is not None:
        *front, rows, columns = range(len(edit.types[b].shape))
        if inner.integers("permutation") == (*front, columns, rows):
            edit.turn(node, "batch_matmul", (a, inner.inputs[0]), transpose_b=not swapped)


@rewrite("slice")
def split_gates(edit: Edit, node: Node) -> None:
    """Make a dense layer for each part of its columns, so that what follows a part can be fused.

    before: y = dense(x, w) + b; a = y[…, :n]; silu(a) * y[…, n:]
    after:  silu(dense(x, w[:, :n]) + b[:n]) * (dense(x, w[:, n:]) + b[n:])

    There must be two, neither narrow, which do not overlap; of one of them at least, nothing but
    elementwise operators is made, and by such they meet again. Keys and values do not.
    """
    source = node.inputs[0]
    added = edit.producer(source, "add")
    summed, bias = (source, "") if added is None else added.inputs
    if bias and edit.producer(summed, "dense") is None:
        summed, bias = bias, summed
    product = found(edit.producer(summed, "dense"))
    x, w = product.inputs
    weights: Any = found(edit.constants.get(w))
    offsets: Any = edit.constants.get(bias)
    columns, parts = weights.shape[1:], edit.readers[source]
    only_if(not bias or (offsets is not None and offsets.shape == columns))
    only_if(len(parts) == 2 and source not in edit.outputs and (not bias or edit.read_once(summed)))
    cuts = sorted(_cut_columns(edit, part) for part in parts)
    only_if(all(stop - start >= _NARROWEST for start, stop in cuts))
    only_if(all(stop <= start for (_, stop), (start, _) in pairwise(cuts)))
    made = [edit.readers.get(part.output, ()) for part in parts]
    only_if(any(on and all(OPERATORS[r.operator].elementwise for r in on) for on in made))
    only_if(not _elementwise_of(edit, parts[0]).isdisjoint(_elementwise_of(edit, parts[1])))
    start, stop = _cut_columns(edit, node)
    part = edit.constant(f"{w}.{start}", np.ascontiguousarray(weights[:, start:stop]))
    if offsets is None:
        edit.turn(node, "dense", (x, part))
        return
    half = edit.node("dense", (x, part), name=product.name)
    offset = edit.constant(f"{bias}.{start}", offsets[start:stop])
    edit.turn(node, "add", (half.output, offset), [half])


def _elementwise_of(edit: Edit, part: Node) -> set[str]:
    """What elementwise operators alone make of a part."""
    made, behind = set[str](), [part]
    while behind:
        for reader in edit.readers.get(behind.pop().output, ()):
            if OPERATORS[reader.operator].elementwise and reader.output not in made:
                made.add(reader.output)
                behind.append(reader)
    return made


def _cut_columns(edit: Edit, node: Node) -> tuple[int, int]:
    """The columns that a slice takes, if it takes nothing but columns."""
    only_if(node.operator == "slice")
    shape = edit.types[node.inputs[0]].shape
    starts, stops = node.integers("starts"), node.integers("stops")
    only_if(edit.types[node.output].shape[:-1] == shape[:-1])
    only_if(all(step == 1 for step in node.integers("steps")))
    return starts[-1], stops[-1]
