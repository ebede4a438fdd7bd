"""The plain meaning of every anchor as tensor expressions, for the general fallback.

Each rule gives a value whose expression may be a reduction at its top; `compute_anchor` puts it in
a stage. Half precision accumulates in single.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from tvm import te, tirx

from tilewright.compiler.lower import bindings, mathematics
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.recurrent_loop import layer_states
from tilewright.compiler.lower.values import (
    Index,
    Read,
    Value,
    bordered,
    broadcast,
    broadcast_index,
    in_type,
    pointwise,
)
from tilewright.core.element_types import element_type
from tilewright.core.forms import PLAIN, channel_block, in_channel_blocks
from tilewright.graph.network import TensorType
from tilewright.graph.operators.attention import CODING, Heads, heads_of, heads_of_codes

Expr = tirx.Expr
Rule = Callable[[Program, list[Value], dict[str, Any], TensorType], Value]


def infinity(dtype: str, sign: str) -> Expr:
    """The identity of an extreme: infinite, where the type has it."""
    whole = tirx.max_value(dtype) if sign == "" else tirx.min_value(dtype)
    return whole if "int" in dtype else tirx.const(float(f"{sign}inf"), dtype)


PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product")
LARGEST = te.comm_reducer(
    lambda a, b: tirx.max(a, b), lambda dtype: infinity(dtype, "-"), name="largest"
)
SMALLEST = te.comm_reducer(
    lambda a, b: tirx.min(a, b), lambda dtype: infinity(dtype, ""), name="smallest"
)
COMBINE = {
    "reduce_sum": te.sum,
    "reduce_mean": te.sum,
    "reduce_max": LARGEST,
    "reduce_min": SMALLEST,
    "reduce_prod": PRODUCT,
}
"""TVM's reduction behind a reduction operator."""


def widened(value: Value, result: str = "") -> Value:
    """The value in the type its sums are kept in: that of `result`, by default of its own type."""
    return in_type(value, element_type(result or value.type.dtype).accumulator)


def storable(value: Value) -> Value:
    """The value as it is kept inside a kernel: TVM makes singles of buffers of bfloat16 there, and
    does not see that their bits are asked for."""
    return widened(value) if value.type.dtype == "bfloat16" else value


def staged(program: Program, value: Value, name: str) -> Value:
    """The value computed once, in memory, in the layout of the result where that fits."""
    form, shape = program.result_form, value.type.shape
    if in_channel_blocks(form):
        block = channel_block(form)
        fits = block > 0 and len(shape) >= 2 and shape[1] % block == 0
    else:
        fits = len(shape) == len(form.layout.order)
    return program.kept(storable(value), form if fits else PLAIN, name)


def reduce_axes(program: Program, extents: tuple[int, ...], name: str = "k") -> list[Any]:
    """Axes to add up over, called k0, k1, …"""
    return program.reduce_axes(**{f"{name}{i}": extent for i, extent in enumerate(extents)})


def _padded(program: Program, data: Value, padding: tuple[int, ...], filler: float) -> Value:
    """The last two axes with a border, as a stage of its own where there is one."""
    if not any(padding):
        return data
    return staged(program, bordered(storable(data), padding, filler), "padded")


def _conv2d(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    data = widened(_padded(program, operands[0], named["padding"], 0), result.dtype)
    weight = widened(operands[1], result.dtype)
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    channels, per_group = weight.type.shape[1], result.shape[1] // named["groups"]
    axes = reduce_axes(program, (channels, *weight.type.shape[2:]))
    c, ky, kx = (axis.var for axis in axes)

    def read(index: Index) -> Expr:
        n, o, y, x = index
        first = program.simplify(tirx.floordiv(o, per_group)) * channels
        at = data.read([n, first + c, y * sh + ky * dh, x * sw + kx * dw])
        return te.sum(at * weight.read([o, c, ky, kx]), axis=axes)

    return Value(TensorType(result.shape, data.type.dtype), read)


def _conv2d_transpose(
    program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    data, weight = (widened(operand, result.dtype) for operand in operands)
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    top, left = named["padding"][:2]
    _, channels, height, width = data.type.shape
    per_group, kh, kw = weight.type.shape[1:]
    group_in = channels // named["groups"]
    axes = reduce_axes(program, (group_in, kh, kw))
    c, ky, kx = (axis.var for axis in axes)

    def read(index: Index) -> Expr:
        n, o, y, x = index
        group, within = program.simplify.split(o, per_group)
        row, column = y + top - ky * dh, x + left - kx * dw
        i, j = tirx.floordiv(row, sh), tirx.floordiv(column, sw)
        inside = tirx.all(
            row >= 0, column >= 0, i < height, j < width,
            tirx.floormod(row, sh) == 0, tirx.floormod(column, sw) == 0,
        )  # fmt: skip
        channel = group * group_in + c
        product = data.read([n, channel, i, j]) * weight.read([channel, within, ky, kx])
        return te.sum(tirx.if_then_else(inside, product, tirx.const(0, data.type.dtype)), axis=axes)

    return Value(TensorType(result.shape, data.type.dtype), read)


def _dense(program: Program, operands: list[Value], _: Any, result: TensorType) -> Value:
    data, weight = (widened(operand, result.dtype) for operand in operands)
    (axis,) = reduce_axes(program, weight.type.shape[:1])

    def read(index: Index) -> Expr:
        *front, column = index
        return te.sum(data.read([*front, axis.var]) * weight.read([axis.var, column]), axis=axis)

    return Value(TensorType(result.shape, data.type.dtype), read)


def _batch_matmul(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    left, right = (widened(operand, result.dtype) for operand in operands)
    (axis,) = reduce_axes(program, left.type.shape[-1:])

    def read(index: Index) -> Expr:
        *front, row, column = index
        a = left.read([*broadcast_index(front, left.type.shape[:-2]), row, axis.var])
        inner = [column, axis.var] if named["transpose_b"] else [axis.var, column]
        b = right.read([*broadcast_index(front, right.type.shape[:-2]), *inner])
        return te.sum(a * b, axis=axis)

    return Value(TensorType(result.shape, left.type.dtype), read)


def _window_count(index: Index, named: Any, plane: tuple[int, ...]) -> Expr:
    """How many taps of a pooling window lie inside the data, at least one (int32)."""
    total: Expr = tirx.const(1, "int32")
    for axis, position in enumerate(index[2:]):
        first = position * named["strides"][axis] - named["padding"][axis]
        step = named["dilation"][axis]
        begin = tirx.floordiv(tirx.max(0 - first, 0) + (step - 1), step)
        beyond = tirx.floordiv(plane[axis] - first + (step - 1), step)
        end = tirx.min(beyond, named["kernel"][axis])
        total = total * tirx.max(end - begin, 0)
    return tirx.max(total, 1)


def pool_divisor(index: Index, named: Any, data: TensorType, dtype: str) -> Expr:
    """What a sum over a pooling window is divided by."""
    if named["count_include_pad"] or not any(named["padding"]):
        return tirx.const(prod(named["kernel"]), dtype)
    return tirx.Cast(dtype, _window_count(index, named, data.shape[2:]))


def pool_filler(named: Any, dtype: str) -> float:
    """What changes nothing in a pooling window: zero, or the identity of maximum."""
    if "count_include_pad" in named:
        return 0
    return tirx.min_value(dtype).value if "int" in dtype else float("-inf")


def pool_window(program: Program, data: Value, named: Any) -> Read:
    """The sum or maximum over a pooling window; `data` is read at positions that count a border."""
    axes = reduce_axes(program, named["kernel"])
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    ky, kx = (axis.var for axis in axes)
    combine = te.sum if "count_include_pad" in named else LARGEST

    def read(index: Index) -> Expr:
        n, c, y, x = index
        return combine(data.read([n, c, y * sh + ky * dh, x * sw + kx * dw]), axis=axes)

    return read


def _pool(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    (source,) = operands
    data = _padded(program, source, named["padding"], pool_filler(named, source.type.dtype))
    averages = "count_include_pad" in named
    data = widened(data) if averages else data
    kind = TensorType(result.shape, data.type.dtype)
    window = Value(kind, pool_window(program, data, named))
    if not averages:
        return window
    total = staged(program, window, "window")

    def divided(index: Index) -> Expr:
        divisor, at = pool_divisor(index, named, source.type, kind.dtype), total.read(index)
        return tirx.truncdiv(at, divisor) if "int" in kind.dtype else at / divisor

    return Value(kind, divided)


def _reduction(
    name: str, program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    data, chosen = widened(operands[0]), named["axes"]
    if not chosen:
        return data
    extents = tuple(data.type.shape[axis] for axis in chosen)
    value = Value(
        TensorType(result.shape, data.type.dtype),
        _reducing(program, data, chosen, COMBINE[name], "k"),
    )
    if name != "reduce_mean":
        return value
    return pointwise(lambda total: mean(total, prod(extents)), staged(program, value, "total"))


def _reducing(
    program: Program, data: Value, over: tuple[int, ...], combine: Any, name: str
) -> Read:
    """The data combined over axes, at positions that have the reduced axes or leave them out."""
    axes = reduce_axes(program, tuple(data.type.shape[axis] for axis in over), name)
    rank = len(data.type.shape)

    def read(index: Index) -> Expr:
        kept = list(index)
        if len(kept) == rank:
            kept = [position for axis, position in enumerate(kept) if axis not in over]
        inner, outer = iter([axis.var for axis in axes]), iter(kept)
        at = [next(inner) if axis in over else next(outer) for axis in range(rank)]
        return combine(data.read(at), axis=axes)

    return read


def mean(total: Expr, count: int) -> Expr:
    """A sum divided by how many were added."""
    kind = mathematics.dtype(total)
    divisor = tirx.const(max(count, 1), kind)
    return tirx.floordiv(total, divisor) if "int" in kind else total / divisor


def _folded(program: Program, data: Value, over: tuple[int, ...], combine: Any, name: str) -> Value:
    """Reduce over axes and keep them as extents of one, in a stage of its own."""
    shape = tuple(1 if axis in over else extent for axis, extent in enumerate(data.type.shape))
    value = Value(TensorType(shape, data.type.dtype), _reducing(program, data, over, combine, name))
    return broadcast(program.kept(value, PLAIN, name), data.type)


def _softmax(
    name: str, program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    data = staged(program, widened(operands[0]), "data")
    over = (named["axis"],)
    top = _folded(program, data, over, LARGEST, "maximum")
    power = pointwise(lambda x, most: mathematics.exp(x - most), data, top)
    powers = staged(program, power, "powers")
    total = _folded(program, powers, over, te.sum, "total")
    if name == "softmax":
        return pointwise(lambda x, whole: x / whole, powers, total)
    return pointwise(lambda x, most, whole: x - most - mathematics.log(whole), data, top, total)


def _normalised(
    name: str, program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, in two passes; `rms_norm` has neither
    mean nor bias."""
    data, *parts = map(widened, operands)
    by_channel = name == "instance_norm"
    over = tuple(range(2 if by_channel else named["axis"], len(result.shape)))
    data = staged(program, data, "data")
    count = prod(data.type.shape[axis] for axis in over)
    centred = data
    if name != "rms_norm":
        total = _folded(program, data, over, te.sum, "total")
        centre = pointwise(lambda x, whole: x - mean(whole, count), data, total)
        centred = staged(program, centre, "centred")
    squares = _folded(program, pointwise(lambda x: x * x, centred), over, te.sum, "squares")

    def divided(x: Expr, whole: Expr) -> Expr:
        return x / tirx.sqrt(mean(whole, count) + tirx.const(named["epsilon"], data.type.dtype))

    normal = pointwise(divided, centred, squares)

    def read(index: Index) -> Expr:
        factor, *offset = (
            value.read([index[1]] if by_channel else broadcast_index(index, value.type.shape))
            for value in parts
        )
        return sum(offset, start=normal.read(index) * factor)

    return Value(normal.type, read)


def _lrn(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    data = staged(program, widened(operands[0]), "data")
    size, channels, kind = named["size"], result.shape[1], data.type.dtype
    (axis,) = reduce_axes(program, (size,))
    before = (size - 1) // 2

    def square(index: Index) -> Expr:
        channel = index[1] + axis.var - before
        at = data.read([index[0], channel, *index[2:]])
        inside = tirx.all(channel >= 0, channel < channels)
        return te.sum(tirx.if_then_else(inside, at * at, tirx.const(0, kind)), axis=axis)

    total = staged(program, Value(data.type, square), "squares")
    return pointwise(partial(lrn_value, named), data, total)


def lrn_value(named: Any, x: Expr, squares: Expr) -> Expr:
    """x / (bias + alpha / size * squares)**beta."""
    kind = mathematics.dtype(x)
    factor = tirx.const(named["alpha"] / named["size"], kind)
    scale = tirx.const(named["bias"], kind) + squares * factor
    if named["beta"] == 0.75:
        return bindings.shared(tirx.sqrt(scale), lambda root: x / (root * tirx.sqrt(root)))
    return x * mathematics.exp(mathematics.log(scale) * tirx.const(-named["beta"], kind))


def _attention(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    heads = heads_of(tuple(value.type for value in operands), **named)
    q, k, v = map(widened, operands[:3])
    kind, per = q.type.dtype, heads.heads // heads.key_heads
    (depth,) = reduce_axes(program, (heads.depth,), "depth")
    (step,) = reduce_axes(program, (heads.keys,), "step")

    def product(index: Index) -> Expr:
        image, head, query, key = index
        source = program.simplify(tirx.floordiv(head, per))
        left = q.read([image, query, head * heads.depth + depth.var])
        return te.sum(left * k.read([image, key, source * heads.depth + depth.var]), axis=depth)

    def masked(index: Index) -> Expr:
        read = [each.read(broadcast_index(index, each.type.shape)) for each in operands[3:]]
        score = products.read(index) * tirx.const(named["scale"], kind)
        return masked_score(score, read, named, index[3] - index[2], heads)

    def summed(index: Index) -> Expr:
        image, query, column = index
        head, place = program.simplify.split(column, heads.width)
        source = program.simplify(tirx.floordiv(head, per)) * heads.width + place
        share = shares.read([image, head, query, step.var])
        return te.sum(share * v.read([image, step.var, source]), axis=step)

    whole = TensorType(heads.scores, kind)
    products = staged(program, Value(whole, product), "products")
    power = _softmax("softmax", program, [Value(whole, masked)], {"axis": 3}, whole)
    shares = staged(program, power, "shares")
    return Value(TensorType(result.shape, kind), summed)


def _quantized_attention(
    program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    heads = heads_of_codes(tuple(value.type for value in operands), **named)
    coding, zeros, *masks = operands[3:]
    q, k, v = (
        staged(program, _less_zero(value, zeros, place), name)
        for place, (name, value) in enumerate(zip("qkv", operands, strict=False))
    )
    per, last = heads.heads // heads.key_heads, coding.type.shape[0] - 1
    (depth,) = reduce_axes(program, (heads.depth,), "depth")
    (step,) = reduce_axes(program, (heads.keys,), "step")

    def number(row: int, name: str) -> Expr:
        return coding.read([tirx.const(at, "int32") for at in (row, CODING.index(name))])

    def rounded(x: Expr, row: int) -> Expr:
        near = tirx.nearbyint(x / number(row, "divisor"))
        return tirx.max(tirx.min(near, number(row, "highest")), number(row, "lowest"))

    def product(index: Index) -> Expr:
        image, head, query, key = index
        source = program.simplify(tirx.floordiv(head, per))
        left = q.read([image, query, head * heads.depth + depth.var])
        return te.sum(left * k.read([image, key, source * heads.depth + depth.var]), axis=depth)

    def scored(index: Index) -> Expr:
        found = tirx.Cast(coding.type.dtype, products.read(index))
        for row in range(last + 1):
            found = found * number(row, "factor")
            for mask in masks if row == named["masked"] else ():
                found = found + mask.read(broadcast_index(index, mask.type.shape))
            found = rounded(found, row) if row < last else found
        return found

    def summed(index: Index) -> Expr:
        image, query, column = index
        head, place = program.simplify.split(column, heads.width)
        source = program.simplify(tirx.floordiv(head, per)) * heads.width + place
        share = tirx.Cast("int32", codes.read([image, head, query, step.var]))
        return te.sum(share * v.read([image, step.var, source]), axis=step)

    whole = TensorType(heads.scores)
    products = staged(program, Value(replace(whole, dtype="int32"), product), "products")
    power = _softmax("softmax", program, [Value(whole, scored)], {"axis": 3}, whole)
    codes = staged(program, pointwise(lambda x: rounded(x, last), power), "codes")
    return Value(result, summed)


def _less_zero(codes: Value, zeros: Value, place: int) -> Value:
    def read(index: Index) -> Expr:
        zero = zeros.read([tirx.const(place, "int32")])
        return tirx.Cast("int32", codes.read(index)) - zero

    return Value(replace(codes.type, dtype="int32"), read)


def masked_score(score: Expr, mask: list[Expr], named: Any, ahead: Expr, heads: Heads) -> Expr:
    """A score with what its element of the mask, if there is one, and the order of keys make of it:
    its key is `ahead` of its query."""
    kind = mathematics.dtype(score)
    for value in mask:
        if mathematics.dtype(value) == "bool":
            score = tirx.Select(value, score, tirx.const(float(named["fill"]), kind))
        else:
            score = score + mathematics.converted(value, kind)
    seen = ahead <= heads.keys - heads.queries
    return tirx.Select(seen, score, infinity(kind, "-")) if named["causal"] else score


RULES: dict[str, Rule] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    **{name: partial(_reduction, name) for name in COMBINE},
    "softmax": partial(_softmax, "softmax"),
    "log_softmax": partial(_softmax, "log_softmax"),
    "layer_norm": partial(_normalised, "layer_norm"),
    "rms_norm": partial(_normalised, "rms_norm"),
    "instance_norm": partial(_normalised, "instance_norm"),
    "lrn": _lrn,
    "recurrent": lambda program, *_: layer_states(program),
    "attention": _attention,
    "quantized_attention": _quantized_attention,
}


def compute_anchor(program: Program) -> None:
    """Put the anchor's result into the program, as a stage called `anchor`."""
    step = program.workload.anchor
    result = program.workload.step_types(program.workload.anchor_index)[1]
    operands = [program.operand(value) for value in step.inputs]
    value = RULES[step.operator](program, operands, dict(step.attributes), result)
    program.set_anchor(in_type(staged(program, value, "anchor"), result.dtype).read)
