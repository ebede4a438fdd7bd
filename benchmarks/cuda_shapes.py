"""Random odd workloads of every kind for kernels of GPUs: prime extents, one, three, four and
twenty-four channels, no extent that a tile divides; and results that nothing wrote yet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph.network import Array, TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload

Draw = np.random.Generator
_CHANNELS = (1, 3, 4, 5, 7, 13, 24, 31)
_SIDES = (1, 2, 3, 5, 7, 11, 13, 14, 17, 19, 23)
_LENGTHS = (1, 2, 3, 5, 7, 13, 24, 31, 33, 64, 97, 127, 130)


def step(operator: str, *inputs: int, **named: object) -> Step:
    """A step with its attributes in canonical order."""
    return Step(operator=operator, inputs=inputs, attributes=attributes(**named))  # type: ignore[arg-type]


def workload(
    shapes: list[tuple[int, ...]], *steps: Step, constants: tuple[int, ...] = ()
) -> Workload:
    """A workload of single precision; the arguments at `constants` are known ahead."""
    return _typed([TensorType(shape) for shape in shapes], *steps, constants=constants)


def _typed(kinds: list[TensorType], *steps: Step, constants: tuple[int, ...] = ()) -> Workload:
    arguments = (
        Argument(type=kind, role="constant" if place in constants else "data")
        for place, kind in enumerate(kinds)
    )
    return Workload(arguments=tuple(arguments), steps=steps)


def _one(rng: Draw, values: tuple[int, ...]) -> int:
    return int(rng.choice(values))


def _convolution(rng: Draw) -> Workload:
    kernel = (_one(rng, (1, 1, 2, 3, 3, 5, 7)), _one(rng, (1, 2, 3, 3, 5)))
    dilation = (_one(rng, (1, 1, 2)), _one(rng, (1, 1, 3)))
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    height, width = (max(size, _one(rng, _SIDES)) for size in least)
    groups = _one(rng, (1, 1, 1, 2, 3))
    data, result = groups * _one(rng, _CHANNELS[:6]), groups * _one(rng, _CHANNELS)
    named = dict(
        strides=(_one(rng, (1, 1, 2, 3)), _one(rng, (1, 1, 2))),
        padding=tuple(int(p) for p in rng.integers(0, 4, 4)),
        dilation=dilation,
        groups=groups,
    )
    shapes = [(_one(rng, (1, 1, 2, 3)), data, height, width), (result, data // groups, *kernel)]
    return workload(
        [*shapes, (result, 1, 1)],
        step("conv2d", 0, 1, **named),
        step("add", 3, 2),
        step("relu", 4),
        constants=(1, 2) if result % 2 else (),
    )


def _depthwise(rng: Draw) -> Workload:
    kernel = (_one(rng, (1, 3, 3, 5)), _one(rng, (1, 3, 3, 5)))
    channels, times = _one(rng, _CHANNELS), _one(rng, (1, 1, 2))
    named = dict(
        strides=(_one(rng, (1, 2)),) * 2,
        padding=tuple(int(p) for p in rng.integers(0, 3, 4)),
        dilation=(1, 1),
        groups=channels,
    )
    height, width = (max(k, _one(rng, _SIDES)) for k in kernel)
    shapes = [(_one(rng, (1, 2)), channels, height, width), (channels * times, 1, *kernel)]
    return workload(
        [*shapes, (channels * times, 1, 1)],
        step("conv2d", 0, 1, **named),
        step("add", 3, 2),
        step("clip", 4, minimum=0.0, maximum=6.0),
        constants=(1, 2),
    )


def _transposed(rng: Draw) -> Workload:
    kernel, strides = (_one(rng, (1, 2, 3, 4)),) * 2, (_one(rng, (1, 2, 3)),) * 2
    groups = _one(rng, (1, 1, 2))
    data, result = groups * _one(rng, _CHANNELS[:6]), _one(rng, _CHANNELS[:6])
    named = dict(
        strides=strides,
        padding=(0,) * 4 if kernel[0] < 3 else (1, 0, 1, 1),
        output_padding=(0, 0),
        dilation=(1, 1),
        groups=groups,
    )
    shape = (_one(rng, (1, 2)), data, max(3, _one(rng, _SIDES[:7])), max(3, _one(rng, _SIDES[:7])))
    return workload(
        [shape, (data, result, *kernel)],
        step("conv2d_transpose", 0, 1, **named),
        step("relu", 2),
        constants=(1,) if result % 2 else (),
    )


def _dense(rng: Draw) -> Workload:
    rows = [(_one(rng, _LENGTHS),), (2, _one(rng, _SIDES)), (1,), (1,)][int(rng.integers(4))]
    depth, columns = _one(rng, _LENGTHS), _one(rng, _LENGTHS)
    return workload(
        [(*rows, depth), (depth, columns), (columns,)],
        step("dense", 0, 1),
        step("add", 3, 2),
        step("sigmoid", 4),
    )


def _product(rng: Draw) -> Workload:
    batch, rows, depth, columns = (_one(rng, _SIDES), *(_one(rng, _LENGTHS) for _ in range(3)))
    turned = bool(rng.integers(2))
    right = (columns, depth) if turned else (depth, columns)
    fronts = [((batch,), (batch,)), ((2, 3), (3,)), ((1,), (batch,))][int(rng.integers(3))]
    return workload(
        [(*fronts[0], rows, depth), (*fronts[1], *right)],
        step("batch_matmul", 0, 1, transpose_b=turned),
    )


def _row(rng: Draw) -> Workload:
    shape = (_one(rng, (1, 2, 5)), _one(rng, _CHANNELS), _one(rng, _LENGTHS))
    if not rng.integers(3):
        shape = (_one(rng, (1, 2)), _one(rng, (1, 3)), _one(rng, (1031, 4099, 16411)))
    kind = str(rng.choice(["softmax", "log_softmax", "layer_norm", "rms_norm", "reduce"]))
    if kind == "layer_norm":
        anchor = step("layer_norm", 0, 1, 2, axis=2, epsilon=1e-5)
        return workload([shape, shape[2:], shape[2:]], anchor)
    if kind == "rms_norm":
        return workload([shape, shape[1:]], step("rms_norm", 0, 1, axis=1, epsilon=1e-5))
    if kind == "reduce":
        operator = str(rng.choice(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min"]))
        axes = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)][int(rng.integers(7))]
        keep = bool(rng.integers(2))
        return workload([shape], step(operator, 0, axes=axes, keepdims=keep))
    return workload([shape], step(kind, 0, axis=int(rng.integers(3))), step("add", 1, 0))


def _window(rng: Draw) -> Workload:
    kernel = (_one(rng, (1, 2, 3, 5)), _one(rng, (2, 3, 3)))
    named: dict[str, object] = dict(
        kernel=kernel,
        strides=(_one(rng, (1, 2, 3)), _one(rng, (1, 2))),
        padding=(kernel[0] // 2, kernel[1] // 2, 0, kernel[1] // 2),
        dilation=(1, 1),
    )
    operator = str(rng.choice(["max_pool2d", "avg_pool2d"]))
    if operator == "avg_pool2d":
        named["count_include_pad"] = bool(rng.integers(2))
    height, width = (max(k, _one(rng, _SIDES)) for k in kernel)
    return workload(
        [(_one(rng, (1, 2)), _one(rng, _CHANNELS), height, width)], step(operator, 0, **named)
    )


def _stream(rng: Draw) -> Workload:
    shape = (_one(rng, (1, 2, 3)), _one(rng, _CHANNELS), _one(rng, _SIDES), _one(rng, _SIDES))
    kind = int(rng.integers(6))
    if kind == 0:
        return workload(
            [shape, (shape[1], 1, 1), shape],
            step("multiply", 0, 1),
            step("add", 3, 2),
            step("tanh", 4),
        )
    if kind == 1:
        order = tuple(int(axis) for axis in rng.permutation(4))
        return workload([shape], step("transpose", 0, permutation=order))
    if kind == 2:
        other = (shape[0], _one(rng, _CHANNELS), *shape[2:])
        return workload([shape, other], step("concat", 0, 1, axis=1), step("relu", 2))
    if kind == 3:
        flat = (shape[0] * shape[1], shape[2] * shape[3])
        return workload([shape], step("reshape", 0, shape=flat), step("exp", 1))
    if kind == 4:
        return workload([(1, shape[1], 1, shape[3])], step("expand", 0, shape=shape))
    return workload([shape], step("sigmoid", 0), step("multiply", 0, 1))


def _attention(rng: Draw) -> Workload:
    batch, key_heads, width = _one(rng, (1, 2)), _one(rng, (1, 2, 3)), _one(rng, (4, 5, 8, 13, 24))
    heads = key_heads * _one(rng, (1, 1, 2))
    queries, keys = _one(rng, _LENGTHS[:9]), _one(rng, _LENGTHS[:9])
    shapes = [
        (batch, queries, heads * width),
        (batch, keys, key_heads * width),
        (batch, keys, key_heads * _one(rng, (4, 7, 8))),
    ]
    inputs = (0, 1, 2)
    if rng.integers(2):
        shapes.append((batch, 1, 1, keys))
        inputs = (0, 1, 2, 3)
    named = dict(heads=heads, key_heads=key_heads, scale=0.4, fill="-inf")
    causal = bool(rng.integers(2)) and queries <= keys
    return workload(shapes, step("attention", *inputs, causal=causal, **named))


def _codes(rng: Draw) -> Workload:
    """Whole sums of codes of eight bits, the left ones signed or not."""
    left, right = str(rng.choice(["int8", "uint8"])), "int8"
    rows, depth, columns = (_one(rng, _LENGTHS) for _ in range(3))
    constants = (1,) if rng.integers(2) else ()
    kind = int(rng.integers(3))
    if kind == 0:
        types = [TensorType((rows, depth), left), TensorType((depth, columns), right)]
        return _typed(types, step("dense", 0, 1), constants=constants)
    if kind == 1:
        batch, turned = _one(rng, _SIDES[:6]), bool(rng.integers(2))
        lines = (columns, depth) if turned else (depth, columns)
        types = [TensorType((batch, rows, depth), left), TensorType((batch, *lines), right)]
        return _typed(types, step("batch_matmul", 0, 1, transpose_b=turned))
    one = _convolution(rng)
    shapes = [argument.type.shape for argument in one.arguments[:2]]
    types = [TensorType(shape, it) for shape, it in zip(shapes, (left, right), strict=True)]
    return _typed(types, one.steps[0], constants=constants)


FAMILIES: dict[str, Callable[[Draw], Workload]] = {
    "convolution": _convolution,
    "depthwise": _depthwise,
    "transposed": _transposed,
    "dense": _dense,
    "product": _product,
    "attention": _attention,
    "rows": _row,
    "windows": _window,
    "stream": _stream,
    "codes": _codes,
}
"""What draws a workload, by kind."""


def drawn(count: int, seed: int = 0) -> list[tuple[str, Workload]]:
    """So many workloads with their kinds, in turn; each seed gives others."""
    rng, kinds = np.random.default_rng(seed), list(FAMILIES)
    return [(kinds[n % len(kinds)], FAMILIES[kinds[n % len(kinds)]](rng)) for n in range(count)]


def unwritten(shape: tuple[int, ...], dtype: str) -> Array:
    """A tensor that nothing wrote: NaN, or the largest number of a whole type."""
    kind = np.dtype(dtype)
    return np.full(shape, np.nan if kind.kind in "fV" else np.iinfo(kind).max, kind)
