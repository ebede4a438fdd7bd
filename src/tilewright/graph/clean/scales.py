"""Constant scales and shifts: merged with each other and into weights."""

from __future__ import annotations

from dataclasses import replace
from math import frexp, prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.clean.edit import Edit, found, only_if, rewrite
from tilewright.graph.network import Node

_FLOATS = ("float16", "float32", "float64")


class _Term(NamedTuple):
    """A node that is `data + constant`, or `data * constant`."""

    node: Node
    data: str
    constant: str


@rewrite("subtract", "divide", "power")
def normalize_arithmetic(edit: Edit, node: Node) -> None:
    """Write constant arithmetic as multiplications and additions, small powers as products.

    before: x - c      x / c          x ** 2     x ** 3         x ** 0.5
    after:  x + (-c)   x * (1 / c)    x * x      (x * x) * x    sqrt(x)

    A quotient that is rounded next, as in quantization, stays one unless 1 / c is exact: another
    last bit may give another code.
    """
    x, c = node.inputs
    value: Any = found(edit.constants.get(c))
    only_if(edit.types[node.output].dtype in _FLOATS and x not in edit.constants)
    match node.operator:
        case "subtract":
            edit.turn(node, "add", (x, edit.constant(f"{c}.negative", np.asarray(-value))))
        case "divide":
            with np.errstate(all="ignore"):
                inverse = np.asarray((1 / value.astype(np.float64)).astype(value.dtype))
            exact = bool((np.frexp(value)[0] == 0.5).all())
            readers = edit.readers.get(node.output, ())
            only_if(exact or all(reader.operator != "round" for reader in readers))
            usable = np.isfinite(value).all() and np.isfinite(inverse).all() and inverse.all()
            only_if(bool(usable))
            edit.turn(node, "multiply", (x, edit.constant(f"{c}.inverse", inverse)))
        case _:
            only_if(edit.types[x] == edit.types[node.output])
            _expand_power(edit, node, edit.scalar(c))


def _expand_power(edit: Edit, node: Node, exponent: float | None) -> None:
    x = node.inputs[0]
    match exponent:
        case 2.0:
            edit.turn(node, "multiply", (x, x))
        case 3.0:
            square = edit.node("multiply", (x, x), name=f"{node.name}.square")
            edit.turn(node, "multiply", (square.output, x), [square])
        case _:
            unary = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
            edit.turn(node, found(unary.get(found(exponent))), (x,))


@rewrite("multiply", "add")
def merge_arithmetic(edit: Edit, node: Node) -> None:
    """Merge constant scales that follow each other, and constant shifts.

    before: (x * a) * b      (x + a) + b      (x * a + b) * c
    after:  x * (a * b)      x + (a + b)      x * (a * c) + b * c
    """
    outer = found(_term(edit, node))
    inner = _inner(edit, outer, node.operator)
    if inner is not None:
        edit.rewire(node, (inner.data, _combined(edit, node.operator, inner, outer)))
        return
    shifted = found(_inner(edit, outer, "add"))
    scaled = found(_inner(edit, shifted, "multiply"))
    factor = _combined(edit, "multiply", scaled, outer)
    bias = _combined(edit, "multiply", shifted, outer)
    product = edit.rewritten(scaled.node, (scaled.data, factor))
    edit.turn(node, "add", (product.output, bias), [product])


def _combined(edit: Edit, operator: str, first: _Term, second: _Term) -> str:
    """The sum or product of two constants; NotApplicable where it grows or leaves the type's
    range."""
    a: Any = edit.constants[first.constant].astype(np.float64)
    b: Any = edit.constants[second.constant].astype(np.float64)
    only_if(np.broadcast(a, b).size <= max(a.size, b.size))
    merged: Any = a * b if operator == "multiply" else a + b
    return _stored(edit, f"{second.constant}.merged", merged, second.constant)


@rewrite("multiply")
def distribute_scales(edit: Edit, node: Node) -> None:
    """Merge a power of two behind a sum of scaled values into both scales, which is exact.

    before: (x * a + y * b) * c
    after:  x * (a * c) + y * (b * c)

    This is how two tensors of codes are added.
    """
    outer = found(_term(edit, node))
    only_if(edit.read_once(outer.data))
    total = found(edit.producer(outer.data, "add"))
    only_if(abs(frexp(found(edit.scalar(outer.constant)))[0]) == 0.5)
    new: list[Node] = []
    for tensor in total.inputs:
        only_if(edit.read_once(tensor))
        term = found(_term(edit, edit.producer(tensor, "multiply")))
        merged = _combined(edit, "multiply", outer, term)
        new.append(edit.rewritten(term.node, (term.data, merged)))
    last = edit.node("add", [n.output for n in new], name=total.name, output=node.output)
    edit.replace(node, *new, last)


@rewrite("multiply")
def fold_scales(edit: Edit, node: Node) -> None:
    """Fold scales per channel behind a convolution or dense layer into its weight.

    before: conv2d(x, w) * s              (conv2d(x, w) + b) * s + t
    after:  conv2d(x, w * s)              conv2d(x, w * s) + (b * s + t)

    This is how batch norms go. Scales before a convolution stay.
    """
    outer = found(_term(edit, node))
    only_if(edit.read_once(outer.data))
    shifted = _inner(edit, outer, "add")
    source = outer.data if shifted is None else shifted.data
    weighted = found(edit.producer(source, "conv2d", "conv2d_transpose", "dense"))
    only_if(weighted.inputs[1] in edit.constants and edit.read_once(source))
    inputs = weighted.inputs[0], _scaled_weight(edit, weighted, outer.constant)
    if shifted is None:
        edit.replace(node, edit.rewritten(weighted, inputs, node.output))
        return
    only_if(_per_channel(edit, weighted, shifted.constant) is not None)
    factor: Any = edit.constants[outer.constant]
    product: Any = edit.constants[shifted.constant].astype(np.float64) * factor
    bias = _stored(edit, f"{shifted.constant}.scaled", product, shifted.constant)
    scaled = replace(edit.rewritten(weighted, inputs), name=weighted.name)
    edit.turn(node, "add", (scaled.output, bias), [scaled])


def _term(edit: Edit, node: Node | None) -> _Term | None:
    """An addition or multiplication of a constant to floats whose result has the data's type."""
    if node is None or node.operator not in ("add", "multiply"):
        return None
    data, constant = node.inputs
    if data in edit.constants:
        data, constant = constant, data
    if constant not in edit.constants or data in edit.constants:
        return None
    kind = edit.types[data]
    fits = kind.dtype in _FLOATS and kind == edit.types[node.output]
    return _Term(node, data, constant) if fits else None


def _inner(edit: Edit, outer: _Term, operator: str) -> _Term | None:
    """The term of an operator whose result a term reads as its data, and nobody else does."""
    alone = edit.read_once(outer.data)
    return _term(edit, edit.producer(outer.data, operator)) if alone else None


def _per_channel(edit: Edit, weighted: Node, constant: str) -> Any:
    """The constant as a vector over output channels (or of one element), else None."""
    array: Any = edit.constants[constant].astype(np.float64)
    rank = len(edit.types[weighted.output].shape)
    axis = rank - 1 if weighted.operator == "dense" else 1
    shape = (1,) * (rank - array.ndim) + array.shape
    return array.reshape(-1) if prod(shape) == shape[axis] else None


def _scaled_weight(edit: Edit, weighted: Node, constant: str) -> str:
    """A weight times a constant, as `_stored`; NotApplicable where this is not one per channel."""
    scale, name = found(_per_channel(edit, weighted, constant)), weighted.inputs[1]
    wide: Any = edit.constants[name].astype(np.float64)
    if weighted.operator == "dense":
        product = wide * scale
    elif weighted.operator == "conv2d":
        product = wide * scale.reshape(-1, 1, 1, 1)
    else:
        groups = weighted.integer("groups")
        _, per_group, *kernel = wide.shape
        spread = scale if scale.size == 1 else scale.reshape(groups, 1, per_group, 1, 1)
        product = (wide.reshape(groups, -1, per_group, *kernel) * spread).reshape(wide.shape)
    return _stored(edit, f"{name}.scaled", product, name)


def _stored(edit: Edit, name: str, value: Any, like: str) -> str:
    """A constant of another one's element type; NotApplicable where a value leaves its range."""
    with np.errstate(all="ignore"):
        array = np.asarray(value).astype(edit.constants[like].dtype)
    only_if(bool(np.isfinite(array).all()))
    return edit.constant(name, array)
