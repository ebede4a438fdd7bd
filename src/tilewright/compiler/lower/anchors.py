"""The plain meaning of every anchor as tensor expressions, for the general fallback.

Each rule gives a value whose expression may be a reduction at its top; `compute_anchor` puts it in
a stage. Half precision accumulates in single.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import te, tirx

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, broadcast_index, stored
from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, Form, channel_block
from tilewright.graph.tensor import TensorType

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


def accumulator_type(dtype: str) -> str:
    """The type sums are kept in."""
    return element_type(dtype).accumulator


def in_type(value: Value, dtype: str) -> Value:
    """The value in another element type."""
    if value.type.dtype == dtype:
        return value
    return Value(
        type=TensorType(value.type.shape, dtype),
        read=lambda index: mathematics.converted(value.read(index), dtype),
    )


def widened(value: Value, result: str = "") -> Value:
    """The value in its accumulator type: that of `result`, by default of its own type."""
    return in_type(value, accumulator_type(result or value.type.dtype))


def storable(value: Value) -> Value:
    """The value as it is kept inside a kernel: TVM makes singles of buffers of bfloat16 there, and
    does not see that their bits are asked for."""
    return widened(value) if value.type.dtype == "bfloat16" else value


def stage_form(program: Program, shape: tuple[int, ...]) -> Form:
    """The result's layout where it fits `shape`, else plain."""
    block = channel_block(program.result_form)
    fits = block > 0 and len(shape) >= 2 and shape[1] % block == 0
    return program.result_form if fits else PLAIN


def staged(program: Program, value: Value, name: str) -> Value:
    """The value computed once, in memory, in the layout of the result where that fits."""
    value = storable(value)
    form = stage_form(program, value.type.shape)
    tensor = program.stage(value, form, name)
    return stored(tensor, value.type, form, program.simplify)


def axes(program: Program, extents: tuple[int, ...], name: str) -> list[Any]:
    """Reduction axes; the simplifier knows their ranges."""
    found = [te.reduce_axis((0, extent), f"{name}{i}") for i, extent in enumerate(extents)]
    program.simplify.announce([axis.var for axis in found], extents)
    return found


def padded(program: Program, data: Value, padding: tuple[int, ...], filler: float) -> Value:
    """The last two axes with a border, as a stage of its own where there is one."""
    top, left, bottom, right = padding
    if not any(padding):
        return data
    data = storable(data)
    *lead, height, width = data.type.shape
    kind = TensorType((*lead, height + top + bottom, width + left + right), data.type.dtype)

    def read(index: Index) -> Expr:
        *front, y, x = index
        inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        value = tirx.const(filler, data.type.dtype)
        return tirx.if_then_else(inside, data.read([*front, y - top, x - left]), value)

    return staged(program, Value(type=kind, read=read), "padded")


def _conv2d(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    data = widened(padded(program, operands[0], named["padding"], 0), result.dtype)
    weight = widened(operands[1], result.dtype)
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    channels, per_group = weight.type.shape[1], result.shape[1] // named["groups"]
    reduce = axes(program, (channels, *weight.type.shape[2:]), "k")
    c, ky, kx = (axis.var for axis in reduce)

    def read(index: Index) -> Expr:
        n, o, y, x = index
        first = program.simplify(tirx.floordiv(o, per_group)) * channels
        at = data.read([n, first + c, y * sh + ky * dh, x * sw + kx * dw])
        return te.sum(at * weight.read([o, c, ky, kx]), axis=reduce)

    return Value(type=TensorType(result.shape, data.type.dtype), read=read)


def _conv2d_transpose(
    program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    data, weight = widened(operands[0]), widened(operands[1])
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    top, left = named["padding"][:2]
    _, channels, height, width = data.type.shape
    per_group, kh, kw = weight.type.shape[1:]
    group_in = channels // named["groups"]
    reduce = axes(program, (group_in, kh, kw), "k")
    c, ky, kx = (axis.var for axis in reduce)
    zero = tirx.const(0, data.type.dtype)

    def read(index: Index) -> Expr:
        n, o, y, x = index
        channel = program.simplify(tirx.floordiv(o, per_group)) * group_in + c
        row, column = y + top - ky * dh, x + left - kx * dw
        i, j = tirx.floordiv(row, sh), tirx.floordiv(column, sw)
        inside = tirx.all(
            row >= 0, column >= 0, i < height, j < width,
            tirx.floormod(row, sh) == 0, tirx.floormod(column, sw) == 0,
        )  # fmt: skip
        product = data.read([n, channel, i, j]) * weight.read(
            [channel, program.simplify(tirx.floormod(o, per_group)), ky, kx]
        )
        return te.sum(tirx.if_then_else(inside, product, zero), axis=reduce)

    return Value(type=TensorType(result.shape, data.type.dtype), read=read)


def _dense(program: Program, operands: list[Value], _: Any, result: TensorType) -> Value:
    data, weight = widened(operands[0]), widened(operands[1])
    (axis,) = axes(program, weight.type.shape[:1], "k")

    def read(index: Index) -> Expr:
        *front, column = index
        product = data.read([*front, axis.var]) * weight.read([axis.var, column])
        return te.sum(product, axis=axis)

    return Value(type=TensorType(result.shape, data.type.dtype), read=read)


def _batch_matmul(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    left, right = widened(operands[0]), widened(operands[1])
    (axis,) = axes(program, left.type.shape[-1:], "k")

    def read(index: Index) -> Expr:
        *front, row, column = index
        a = left.read([*broadcast_index(front, left.type.shape[:-2]), row, axis.var])
        inner = [column, axis.var] if named["transpose_b"] else [axis.var, column]
        b = right.read([*broadcast_index(front, right.type.shape[:-2]), *inner])
        return te.sum(a * b, axis=axis)

    return Value(type=TensorType(result.shape, left.type.dtype), read=read)


def window_count(
    positions: tuple[Expr, Expr], named: Any, plane: tuple[int, int], padding: tuple[int, ...]
) -> Expr:
    """How many taps of a pooling window lie inside the data, at least one (int32).

    `positions` are the row and column of the result.
    """
    total: Expr = tirx.const(1, "int32")
    for axis, position in enumerate(positions):
        first = position * named["strides"][axis] - padding[axis]
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
    plane = (data.shape[2], data.shape[3])
    count = window_count((index[2], index[3]), named, plane, named["padding"])
    return tirx.Cast(dtype, count)


def _pool(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    average = "count_include_pad" in named
    source = operands[0]
    filler = 0 if average else lowest(source.type.dtype)
    data = padded(program, source, named["padding"], filler)
    data = widened(data) if average else data
    reduce = axes(program, named["kernel"], "k")
    (sh, sw), (dh, dw) = named["strides"], named["dilation"]
    ky, kx = (axis.var for axis in reduce)
    combine = te.sum if average else LARGEST

    def read(index: Index) -> Expr:
        n, c, y, x = index
        return combine(data.read([n, c, y * sh + ky * dh, x * sw + kx * dw]), axis=reduce)

    value = Value(type=TensorType(result.shape, data.type.dtype), read=read)
    if not average:
        return value
    total = staged(program, value, "window")

    def divided(index: Index) -> Expr:
        divisor = pool_divisor(index, named, source.type, data.type.dtype)
        whole = "int" in data.type.dtype
        at = total.read(index)
        return tirx.truncdiv(at, divisor) if whole else at / divisor

    return Value(type=value.type, read=divided)


def lowest(dtype: str) -> float:
    """The identity of maximum."""
    return tirx.min_value(dtype).value if "int" in dtype else float("-inf")


_COMBINE = {
    "reduce_sum": te.sum,
    "reduce_mean": te.sum,
    "reduce_max": LARGEST,
    "reduce_min": SMALLEST,
    "reduce_prod": PRODUCT,
}


def combination(name: str) -> Any:
    """TVM's reduction behind a reduction operator."""
    return _COMBINE[name]


def _reduction(name: str) -> Rule:
    def rule(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
        data = widened(operands[0])
        chosen: tuple[int, ...] = named["axes"]
        shape = data.type.shape
        if not chosen:
            return data
        reduce = axes(program, tuple(shape[axis] for axis in chosen), "k")

        def read(index: Index) -> Expr:
            at = data.read(source_index(index, chosen, [a.var for a in reduce], len(shape)))
            return _COMBINE[name](at, axis=reduce)

        value = Value(type=TensorType(result.shape, data.type.dtype), read=read)
        if name != "reduce_mean":
            return value
        total, count = staged(program, value, "total"), prod(shape[axis] for axis in chosen)
        return Value(type=value.type, read=lambda index: mean(total.read(index), count))

    return rule


def mean(total: Expr, count: int) -> Expr:
    """A sum divided by how many were added."""
    kind = mathematics.dtype(total)
    divisor = tirx.const(max(count, 1), kind)
    return tirx.floordiv(total, divisor) if "int" in kind else total / divisor


def source_index(
    index: Index, reduced: tuple[int, ...], variables: list[Expr], rank: int
) -> list[Expr]:
    """The position in the operand for a position of a reduction's result, kept axes or not."""
    kept = list(index)
    if len(kept) == rank:
        kept = [position for axis, position in enumerate(kept) if axis not in reduced]
    inner, outer = iter(variables), iter(kept)
    return [next(inner) if axis in reduced else next(outer) for axis in range(rank)]


def _folded(program: Program, data: Value, over: tuple[int, ...], combine: Any, name: str) -> Value:
    """Reduce over axes and keep them as extents of one, in a stage of its own."""
    shape = data.type.shape
    reduce = axes(program, tuple(shape[axis] for axis in over), name)
    kept = tuple(1 if axis in over else extent for axis, extent in enumerate(shape))

    def read(index: Index) -> Expr:
        at = source_index(index, over, [a.var for a in reduce], len(shape))
        return combine(data.read(at), axis=reduce)

    value = Value(type=TensorType(kept, data.type.dtype), read=read)
    tensor = program.stage(value, PLAIN, name)
    folded = stored(tensor, value.type, PLAIN, program.simplify)
    return Value(type=data.type, read=lambda index: folded.read(broadcast_index(index, kept)))


def _softmax(name: str) -> Rule:
    def rule(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
        data = staged(program, widened(operands[0]), "data")
        over = (named["axis"],)
        top = _folded(program, data, over, LARGEST, "maximum")

        def power(index: Index) -> Expr:
            return mathematics.exp(data.read(index) - top.read(index))

        powers = staged(program, Value(type=data.type, read=power), "powers")
        total = _folded(program, powers, over, te.sum, "total")

        def read(index: Index) -> Expr:
            if name == "softmax":
                return powers.read(index) / total.read(index)
            return data.read(index) - top.read(index) - mathematics.log(total.read(index))

        return Value(type=TensorType(result.shape, data.type.dtype), read=read)

    return rule


def _normalised(program: Program, data: Value, over: tuple[int, ...], epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon), two passes."""
    count = prod(data.type.shape[axis] for axis in over)
    total = _folded(program, data, over, te.sum, "total")

    def centre(index: Index) -> Expr:
        return data.read(index) - mean(total.read(index), count)

    centred = staged(program, Value(type=data.type, read=centre), "centred")

    def square(index: Index) -> Expr:
        return centred.read(index) * centred.read(index)

    squares = _folded(program, Value(type=data.type, read=square), over, te.sum, "squares")

    def read(index: Index) -> Expr:
        variance = mean(squares.read(index), count)
        spread = tirx.sqrt(variance + tirx.const(epsilon, data.type.dtype))
        return centred.read(index) / spread

    return Value(type=data.type, read=read)


def _layer_norm(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    data, scale, bias = (widened(operand) for operand in operands)
    over = tuple(range(named["axis"], len(result.shape)))
    normal = _normalised(program, staged(program, data, "data"), over, named["epsilon"])

    def read(index: Index) -> Expr:
        factor = scale.read(broadcast_index(index, scale.type.shape))
        return normal.read(index) * factor + bias.read(broadcast_index(index, bias.type.shape))

    return Value(type=data.type, read=read)


def _instance_norm(
    program: Program, operands: list[Value], named: Any, result: TensorType
) -> Value:
    data, scale, bias = (widened(operand) for operand in operands)
    over = tuple(range(2, len(result.shape)))
    normal = _normalised(program, staged(program, data, "data"), over, named["epsilon"])

    def read(index: Index) -> Expr:
        return normal.read(index) * scale.read([index[1]]) + bias.read([index[1]])

    return Value(type=data.type, read=read)


def _lrn(program: Program, operands: list[Value], named: Any, result: TensorType) -> Value:
    data = staged(program, widened(operands[0]), "data")
    size, channels, kind = named["size"], result.shape[1], data.type.dtype
    (axis,) = axes(program, (size,), "k")
    before = (size - 1) // 2

    def square(index: Index) -> Expr:
        channel = index[1] + axis.var - before
        at = data.read([index[0], channel, *index[2:]])
        inside = tirx.all(channel >= 0, channel < channels)
        return te.sum(tirx.if_then_else(inside, at * at, tirx.const(0, kind)), axis=axis)

    total = staged(program, Value(type=data.type, read=square), "squares")
    return Value(
        type=data.type,
        read=lambda index: lrn_value(data.read(index), total.read(index), named),
    )


def lrn_value(x: Expr, squares: Expr, named: Any) -> Expr:
    """x / (bias + alpha / size * squares)**beta."""
    kind = mathematics.dtype(x)
    scale = tirx.const(named["bias"], kind) + squares * tirx.const(
        named["alpha"] / named["size"], kind
    )
    if named["beta"] == 0.75:
        return mathematics.shared(tirx.sqrt(scale), lambda root: x / (root * tirx.sqrt(root)))
    return x * mathematics.exp(mathematics.log(scale) * tirx.const(-named["beta"], kind))


RULES: dict[str, Rule] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    **{name: _reduction(name) for name in _COMBINE},
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "layer_norm": _layer_norm,
    "instance_norm": _instance_norm,
    "lrn": _lrn,
}


def compute_anchor(program: Program, step_index: int) -> None:
    """Put the anchor's result into the program, as a stage called `anchor`."""
    step = program.workload.steps[step_index]
    rule = RULES.get(step.operator)
    if rule is None:
        raise InternalError(f"no rule for {step.operator}")
    result = program.workload.step_types(step_index)[1]
    operands = [program.operand(value) for value in step.inputs]
    value = staged(program, rule(program, operands, dict(step.attributes), result), "anchor")
    program.set_step(step_index, in_type(value, result.dtype))
