"""Constant scales and shifts: merged with each other and into weights."""

from __future__ import annotations

from dataclasses import replace
from math import frexp, prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.graph.clean.edit import Edit, found, only_if, rewrite
from tilewright.graph.clean.equal_codes import Codes, Scaled, multipliers
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
    last bit may give another code. `multiply_to_codes` knows some whose codes are the same.
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
    terms = [found(_product(edit, tensor)) for tensor in total.inputs]
    factors = [_combined(edit, "multiply", outer, term) for term in terms]
    _in_place(edit, node, terms, factors, total.name)


@rewrite("divide")
def multiply_to_codes(edit: Edit, node: Node) -> None:
    """Multiply instead of dividing what becomes codes, where all pairs of codes give the same ones.

    before: round((x * a + y * b) / c)      round((x * a) / c)
    after:  round(x * A + y * B)            round(x * A)

    x and y are whole numbers of one byte. This is how two tensors of codes are added, too, by
    scales that are no powers of two.
    """
    data, divisor = node.inputs
    scale = found(edit.scalar(divisor))
    only_if(scale > 0 and edit.constants[divisor].dtype == np.float32 and edit.read_once(data))
    only_if(edit.types[data] == edit.types[node.output])
    total = edit.producer(data, "add")
    terms = [found(_product(edit, t)) for t in (data,) * (total is None) or found(total).inputs]
    scaled: list[Scaled] = []
    for term in terms:
        low, high = found(_whole_numbers(edit, term.data))
        scaled.append(Scaled(low, high, found(edit.scalar(term.constant))))
    numbers = found(multipliers(tuple(scaled), scale, _codes_of(edit, node)))
    factors: list[str] = []
    for term, number in zip(terms, numbers, strict=True):
        like: Any = edit.constants[term.constant]
        factors.append(edit.constant(f"{term.constant}.merged", np.full_like(like, number)))
    _in_place(edit, node, terms, factors, node.name if total is None else total.name)


def _product(edit: Edit, tensor: str) -> _Term | None:
    """The multiplication by a constant that writes a tensor, which one port reads."""
    alone = edit.read_once(tensor)
    return _term(edit, edit.producer(tensor, "multiply")) if alone else None


def _in_place(edit: Edit, node: Node, terms: list[_Term], factors: list[str], name: str) -> None:
    """Write a node's output as the sum, of that `name`, of what the terms scale, times factors."""
    *before, last = [
        edit.rewritten(term.node, (term.data, factor), node.output if len(terms) == 1 else None)
        for term, factor in zip(terms, factors, strict=True)
    ]
    if before:
        before.append(last)
        last = edit.node("add", [n.output for n in before], name=name, output=node.output)
    edit.replace(node, *before, last)


def _whole_numbers(edit: Edit, tensor: str) -> tuple[int, int] | None:
    """The limits of a tensor of whole numbers that are as few as a byte has, else None."""
    node = edit.producer(tensor, "cast", "clip", "add")
    if node is None:
        return None
    source = node.inputs[0]
    if node.operator == "cast":
        kind = element_type(edit.types[source].dtype)
        limits = np.iinfo(kind.name) if kind.is_integer and kind.bytes == 1 else None
        return None if limits is None else (int(limits.min), int(limits.max))
    if node.operator == "clip":
        low, high = node.number("minimum"), node.number("maximum")
        whole = low.is_integer() and high.is_integer() and -256 < low <= high < 256
        whole = whole and high - low < 256
        return (int(low), int(high)) if whole and edit.producer(source, "round") else None
    shift = _term(edit, node)
    by = None if shift is None else edit.scalar(shift.constant)
    limits = None if shift is None or by is None else _whole_numbers(edit, shift.data)
    if limits is None or by is None or not by.is_integer() or abs(by) > 255:
        return None
    return limits[0] + int(by), limits[1] + int(by)


def _codes_of(edit: Edit, quotient: Node) -> Codes:
    """Which codes are made of a quotient that is rounded next; NotApplicable where none are."""
    rounding = _only_reader(edit, quotient, "round")
    last = _only_reader(edit, rounding, "add", "clip")
    shift = 0.0
    if last.operator == "add":
        shift = found(edit.scalar(found(_term(edit, last)).constant))
        last = _only_reader(edit, last, "clip")
    low, high = last.number("minimum"), last.number("maximum")
    only_if(high - low < 256)
    return Codes(shift, low, high)


def _only_reader(edit: Edit, node: Node, *operators: str) -> Node:
    """The node that alone reads another's result; NotApplicable where it is another operator."""
    only_if(edit.read_once(node.output))
    reader = edit.readers[node.output][0]
    only_if(reader.operator in operators)
    return reader


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
