"""Recognising attention on codes, as quantizers write it: products of codes around a softmax, with
scores and shares rounded to codes between. Only where a kernel computes it as a whole; elsewhere
its parts are faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilewright.graph.clean.attention import Scores, leading_axes, shaped, side_by_side
from tilewright.graph.clean.edit import Edit, found, only_if, rewrite
from tilewright.graph.network import Node
from tilewright.graph.operators import OPERATORS

_BYTES = ("int8", "uint8")
_HIGHEST = 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Centred:
    """A product of two computed tensors of codes, each less its zero point."""

    product: Node
    left: str
    right: str
    zeros: tuple[int, int]


@rewrite("batch_matmul")
def recognize_quantized_attention(edit: Edit, node: Node) -> None:
    """Recognise attention on codes.

    before: s = (q - 122) (k - 118) * 0.007, rounded to codes; p = softmax of what these stand for,
            rounded to codes; (p - 0) (v - 121) * 0.005, rounded to codes
    after:  transpose(reshape(codes(quantized_attention(q', k', v', coding, zeros) * 0.005)))
    """
    only_if(edit.types[node.output].dtype == "int32")
    sums = _behind(edit, node)
    shares = _centred(edit, sums)
    codings, scored, mask = _codings(edit, shares)
    asked = _centred(edit, scored)
    only_if(edit.read_once(asked.product.output))
    *lead, queries, keys = edit.types[scored].shape
    sources = asked.left, asked.right, shares.right
    only_if(all(edit.types[name].dtype in _BYTES for name in sources))
    batch, heads = leading_axes(edit, sources)
    whole, result = (batch, heads, queries, keys), edit.types[node.output].shape
    only_if(prod(lead) == batch * heads and prod(result) == prod(whole[:3]) * result[-1])
    walk = Scores(scored)
    turned = (not asked.product.attribute("transpose_b"), bool(node.attribute("transpose_b")))
    key_heads, operands = side_by_side(edit, walk, sources, turned, whole)
    rows = edit.constant(f"{node.name}.coding", np.array(codings, np.float32))
    zeros = edit.constant(f"{node.name}.zeros", np.array((*asked.zeros, shares.zeros[1]), np.int32))
    masked, read = mask
    if read:
        shape = edit.types[read].shape
        only_if(len(lead) == 2 or len(shape) < 3)
    attention = edit.node(
        "quantized_attention",
        (*operands, rows, zeros, *([read] if read else [])),
        name=f"{node.name}.attention",
        heads=heads,
        key_heads=key_heads,
        masked=masked,
    )
    chain, last = [*walk.new, attention], attention.output
    for step in _requantized(edit, sums):
        inputs = [last if name not in edit.constants else name for name in step.inputs]
        chain.append(edit.rewritten(step, inputs))
        last, sums = chain[-1].output, step.output
    walk.new = chain
    apart = shaped(edit, walk, last, (batch, queries, heads, result[-1]))
    ahead = edit.node("transpose", (apart,), name=node.name, permutation=(0, 2, 1, 3))
    edit.turn(edit.producers[sums], "reshape", (ahead.output,), [*walk.new, ahead], shape=result)


def _behind(edit: Edit, node: Node) -> str:
    """The sums of a product behind all that is taken from them for zero points."""
    tensor = node.output
    while edit.read_once(tensor) and edit.readers[tensor][0].operator == "subtract":
        tensor = edit.readers[tensor][0].output
    return tensor


def _centred(edit: Edit, tensor: str) -> _Centred:
    """The product that a tensor is the sums of."""
    taken, node = list[str](), edit.producer(tensor, "subtract")
    while node is not None:
        taken.append(node.inputs[1])
        tensor = node.inputs[0]
        node = edit.producer(tensor, "subtract")
    product = found(edit.producer(tensor, "batch_matmul"))
    left, right, middle = product.inputs[0], *_as_signed(edit, product.inputs[1])
    last = len(edit.types[left].shape) - 1
    depth, zeros, offset = edit.types[left].shape[last], [0, middle], 0.0
    columns = last if product.attribute("transpose_b") else last - 1
    for name in taken:
        zero, source, axis, moved = _part(edit, name)
        if (source, axis) == (right, columns):
            only_if(moved == depth * middle)
            zeros[0] = zero
        else:
            only_if((source, axis) == (left, last))
            zeros[1], offset = zero + middle, moved
    only_if(offset == (zeros[0] * depth if zeros[1] != middle else 0))
    return _Centred(product=product, left=left, right=right, zeros=(zeros[0], zeros[1]))


def _as_signed(edit: Edit, tensor: str) -> tuple[str, int]:
    """The codes that become signed ones, and what was taken from them for that."""
    cast = edit.producer(tensor, "cast")
    moved = None if cast is None else edit.producer(cast.inputs[0], "subtract")
    value = None if moved is None else edit.scalar(moved.inputs[1])
    return (
        (tensor, 0)
        if moved is None or value is None
        else (_codes(edit, moved.inputs[0]), int(value))
    )


def _part(edit: Edit, tensor: str) -> tuple[int, str, int, float]:
    """Of what is taken from sums for a zero point: that, the codes that are added up, along which
    axis, and what is taken from their sums."""
    product = found(edit.producer(tensor, "multiply"))
    zero, sums = _with_constant(edit, product)
    moved = edit.producer(sums, "subtract")
    offset = 0.0
    if moved is not None:
        offset, sums = _with_constant(edit, moved)
    total = found(edit.producer(_codes(edit, sums), "reduce_sum"))
    (axis,) = total.integers("axes")
    return int(zero), _codes(edit, total.inputs[0]), axis, offset


def _with_constant(edit: Edit, node: Node) -> tuple[float, str]:
    """The constant of one element that a node reads, and the other operand."""
    for constant, other in (node.inputs[::-1], node.inputs):
        value = edit.scalar(constant)
        if value is not None:
            return value, other
    only_if(False)
    raise AssertionError


def _codes(edit: Edit, tensor: str) -> str:
    """What a tensor was before casts, codes at the most."""
    node = None if edit.types[tensor].dtype in _BYTES else edit.producer(tensor, "cast")
    return tensor if node is None else _codes(edit, node.inputs[0])


Coding = tuple[float, float, float, float]


def _codings(edit: Edit, shares: _Centred) -> tuple[list[Coding], str, tuple[int, str]]:
    """What is between the sums of the scores and the codes of the shares: codings in their order,
    the sums, and behind which factor a mask is added."""
    tensor, divisor, (lowest, highest), zero = _rounded(edit, shares.left)
    only_if(zero == shares.zeros[0] and lowest <= 0 and 0 < highest <= _HIGHEST)
    softmax = found(edit.producer(tensor, "softmax"))
    last = softmax.integer("axis") == len(edit.types[tensor].shape) - 1
    only_if(last and edit.read_once(tensor))
    limits, rows, masks, tensor = (
        (0.0, highest),
        list[Coding](),
        dict[int, str](),
        softmax.inputs[0],
    )
    while True:
        tensor, mask = _unmasked(edit, tensor)
        if mask:
            masks[len(rows)] = mask
        tensor, factor = _scaled(edit, tensor, "multiply")
        rows.append((factor, divisor, *limits))
        whole = edit.producer(tensor, "cast")
        if whole is not None and edit.types[whole.inputs[0]].dtype == "int32":
            break
        tensor, added = _scaled(edit, tensor, "add", 0.0)
        tensor, divisor, limits, zero = _rounded(edit, tensor)
        only_if(zero == -added)
    only_if(len(masks) <= 1)
    at, mask = next(((len(rows) - 1 - n, name) for n, name in masks.items()), (-1, ""))
    codings, at = _merged(rows[::-1], at)
    return codings, whole.inputs[0], (at, mask)


def _merged(rows: list[Coding], masked: int) -> tuple[list[Coding], int]:
    """Codings that divide only behind a mask, and where that is. Codes that are scaled and rounded
    again are whole numbers between limits, so that one factor is tried with all of them; where each
    stays what it was, nothing is rounded."""
    found, at = [rows[0]], min(masked, 0)
    only_if(len(rows) == 1 or rows[0][1] == 1)
    for place, (factor, divisor, *limits) in enumerate(rows[1:-1], 1):
        codes = np.arange(found[-1][2], found[-1][3] + 1, dtype=np.float32)
        wanted = _rounded_again(codes, factor, divisor, limits)
        ratio = float(np.float32(factor) / np.float32(divisor))
        if place == masked:
            at = len(found)
            found.append(rows[place])
        elif not np.array_equal(wanted, codes):
            only_if(np.array_equal(_rounded_again(codes, ratio, 1.0, limits), wanted))
            found.append((ratio, 1.0, limits[0], limits[1]))
    at = len(found) if masked == len(rows) - 1 > 0 else at
    return [*found, *rows[1:][-1:]], at


def _rounded_again(codes: Any, factor: float, divisor: float, limits: Sequence[float]) -> Any:
    rounded: Any = np.rint(codes * np.float32(factor) / np.float32(divisor))
    lowest, highest = limits
    return rounded.clip(lowest, highest)


def _unmasked(edit: Edit, tensor: str) -> tuple[str, str]:
    """A tensor before a mask was added, and that; itself where none was."""
    node = edit.producer(tensor, "add")
    if node is None or any(edit.scalar(name) is not None for name in node.inputs):
        return tensor, ""
    for scores, mask in (node.inputs, node.inputs[::-1]):
        if edit.types[scores] == edit.types[tensor] and edit.producer(scores, "multiply"):
            return scores, mask
    return tensor, ""


def _scaled(edit: Edit, tensor: str, operator: str, neutral: float = 1.0) -> tuple[str, float]:
    """A tensor before an operator with a constant of one element, and that."""
    node = edit.producer(tensor, operator)
    if node is None:
        return tensor, neutral
    value, source = _with_constant(edit, node)
    return source, value


def _rounded(edit: Edit, tensor: str) -> tuple[str, float, tuple[float, float], float]:
    """Of codes: what they are codes of, its divisor, the limits less the zero point, and this."""
    cast = found(edit.producer(_codes(edit, tensor), "cast"))
    clip = found(edit.producer(cast.inputs[0], "clip"))
    source, zero = _scaled(edit, clip.inputs[0], "add", 0.0)
    source = found(edit.producer(source, "round")).inputs[0]
    limits = clip.number("minimum") - zero, clip.number("maximum") - zero
    divide = edit.producer(source, "divide")
    if divide is not None:
        return divide.inputs[0], found(edit.scalar(divide.inputs[1])), limits, zero
    softmax = edit.producer(source, "multiply")
    if softmax is None or edit.producer(softmax.inputs[0], "softmax") is None:
        return source, 1.0, limits, zero
    value, source = _with_constant(edit, softmax)
    return source, 1.0 / value, limits, zero


def _requantized(edit: Edit, sums: str) -> list[Node]:
    """What makes codes of sums, by constants of one element."""
    chain, tensor = list[Node](), sums
    while edit.read_once(tensor):
        (reader,) = edit.readers[tensor]
        others: Any = [edit.scalar(name) for name in reader.inputs if name != tensor]
        if not OPERATORS[reader.operator].elementwise or None in others:
            break
        chain.append(reader)
        tensor = reader.output
    return chain
