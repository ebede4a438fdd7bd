"""Modules of Relax as ONNX: every operator against TVM's own virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.relax import op

from helpers.networks.relax_modules import by_onnx_runtime, by_tvm, function_of

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def const(array: Any, dtype: str = "") -> relax.Expr:
    value = np.asarray(array)
    return relax.const(value, dtype or str(value.dtype))


X = floats(2, 3, 4, 6)
"""What every case is a function of."""
IMAGE, ROWS, LINE = floats(2, 4, 9, 9), floats(2, 6, 12), floats(2, 4, 11)
BLOCK, PLANES = floats(1, 2, 5, 5, 5), floats(2, 3, 9, 11)
HEADS = floats(2, 6, 2, 8)
INTEGERS = RNG.integers(-9, 9, (3, 5)).astype(np.int32)
DIVISORS = np.where(INTEGERS[::-1] == 0, 4, INTEGERS[::-1]).astype(np.int32)
BYTES = RNG.integers(1, 200, (3, 5)).astype(np.uint8)
PLACES = np.int64([[0, 2, 1], [1, 0, 2]])
TRUTHS = RNG.random((2, 3, 4, 6)) < 0.5
POSITIVE = np.abs(X) + np.float32(0.1)
WITHIN = np.tanh(X)

Case = Callable[[], Any]
UNARY = [
    *("abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "isfinite", "isinf"),
    *("isnan", "negative", "nn.gelu", "nn.gelu_tanh", "nn.relu", "nn.selu", "nn.silu", "sigmoid"),
    *("nn.softplus", "round", "sign", "sin", "sinh", "square", "tan", "tanh", "trunc"),
]
BINARY = [
    *("add", "divide", "equal", "greater", "greater_equal", "less", "less_equal", "log_add_exp"),
    *(
        "maximum",
        "minimum",
        "multiply",
        "not_equal",
        "subtract",
        "floor_divide",
        "floor_mod",
        "mod",
    ),
]


def named(name: str) -> Callable[..., Any]:
    found: Any = op
    for part in name.split("."):
        found = getattr(found, part)
    return found


ELEMENTWISE: dict[str, Case] = {
    **{name: lambda name=name: named(name)(const(X)) for name in UNARY},
    **{name: lambda name=name: named(name)(const(X), const(POSITIVE)) for name in BINARY},
    **{n: lambda n=n: named(n)(const(POSITIVE)) for n in ("log", "sqrt", "rsqrt")},
    **{n: lambda n=n: named(n)(const(WITHIN)) for n in ("acos", "asin", "atanh")},
    **{
        f"integer {n}": lambda n=n: named(n)(const(INTEGERS), const(DIVISORS))
        for n in ("floor_divide", "floor_mod", "mod", "divide", "bitwise_and", "bitwise_or")
    },
    **{
        n: lambda n=n: named(n)(const(TRUTHS), const(X > 0))
        for n in ("logical_and", "logical_or", "logical_xor", "bitwise_xor")
    },
    "acosh": lambda: op.acosh(const(POSITIVE + 1)),
    "logical_not": lambda: op.logical_not(const(TRUTHS)),
    "bitwise_not": lambda: op.bitwise_not(const(INTEGERS)),
    "left_shift": lambda: op.left_shift(const(BYTES), const(BYTES % 4)),
    "right_shift": lambda: op.right_shift(const(BYTES), const(BYTES % 4)),
    "power": lambda: op.power(const(POSITIVE), const(X)),
    "where": lambda: op.where(const(TRUTHS), const(X), const(np.float32(3))),
    "astype": lambda: op.astype(const(X), "int32"),
    "clip": lambda: op.clip(const(X), -0.5, 0.7),
    "integer clip": lambda: op.clip(const(INTEGERS), -2, 5),
    "nn.leakyrelu": lambda: op.nn.leakyrelu(const(X), 0.3),
    "nn.prelu": lambda: op.nn.prelu(const(X), const(np.float32([0.1, 0.2, 0.3])), axis=1),
    "softplus beta": lambda: op.nn.softplus(const(X), beta=2.0),
    "softplus threshold": lambda: op.nn.softplus(const(X * 3), beta=2.0, threshold=2.0),
    "add a number": lambda: op.add(const(X), tvm.tirx.FloatImm("float32", 1.5)),
    **{
        f"{n} {axes} {kept}": lambda n=n, axes=axes, kept=kept: named(n)(
            const(X), axis=axes, keepdims=kept
        )
        for n in ("sum", "mean", "max", "min", "prod", "variance", "std")
        for axes, kept in ((None, False), ([1, 3], True), (-1, False))
    },
    **{
        f"{n} {axis} {kept}": lambda n=n, axis=axis, kept=kept: named(n)(const(X), axis, kept)
        for n in ("argmax", "argmin")
        for axis, kept in ((None, False), (None, True), (2, False))
    },
    "cumsum": lambda: op.cumsum(const(X), axis=1),
    "cumsum of all": lambda: op.cumsum(const(INTEGERS), dtype="int64", exclusive=True),
    "quantize": lambda: op.quantize(const(X), const(np.float32(0.02)), const(np.int8(3)), axis=0),
    "dequantize": lambda: op.dequantize(
        const(BYTES), const(np.float32([1, 2, 3])), const(np.uint8([1, 0, 4])), axis=0
    ),
    "full": lambda: op.full((2, 3), const(np.float32(2.5)), "float32"),
    "full_like": lambda: op.full_like(const(X), const(np.float32(1.5))),
    "zeros": lambda: op.zeros((2, 3), "int32"),
    "ones_like": lambda: op.ones_like(const(X)),
}
LAYERS: dict[str, Case] = {
    "conv2d": lambda: op.nn.conv2d(
        const(IMAGE), const(floats(6, 2, 3, 3)), strides=2, padding=(1, 0, 2, 1), groups=2
    ),
    "conv2d NHWC": lambda: op.nn.conv2d(
        const(IMAGE), const(floats(3, 3, 9, 5)), dilation=2, padding=2,
        data_layout="NHWC", kernel_layout="HWIO",
    ),
    "conv1d": lambda: op.nn.conv1d(const(LINE), const(floats(5, 4, 3)), padding=1, dilation=2),
    "conv3d": lambda: op.nn.conv3d(const(BLOCK), const(floats(3, 2, 2, 3, 1))),
    "conv2d_transpose": lambda: op.nn.conv2d_transpose(
        const(IMAGE), const(floats(4, 3, 3, 3)), strides=2, padding=1, output_padding=1
    ),
    "conv1d_transpose": lambda: op.nn.conv1d_transpose(
        const(LINE), const(floats(4, 2, 4)), strides=2
    ),
    "max_pool2d": lambda: op.nn.max_pool2d(
        const(IMAGE), (3, 2), (2, 2), (1, 1, 0, 0), ceil_mode=True
    ),
    **{
        f"{kind} pool beyond {padding} {more}": lambda kind=kind, padding=padding, more=more: (
            named(f"nn.{kind}_pool2d")(
                const(PLANES), (2, 2), (3, 3), padding, ceil_mode=True, **more
            )
        )
        for padding in ((0, 0), (1, 0, 1, 1))
        for kind, more in (
            ("max", {}), ("avg", {}), ("avg", {"count_include_pad": True}),
        )
    },
    "max_pool2d NHWC": lambda: op.nn.max_pool2d(const(IMAGE), (2, 2), (2, 2), layout="NHWC"),
    "max_pool1d": lambda: op.nn.max_pool1d(const(LINE), 3, 2, 1),
    "avg_pool2d": lambda: op.nn.avg_pool2d(const(IMAGE), (3, 3), (2, 2), (1, 1, 1, 1)),
    "avg_pool2d padded": lambda: op.nn.avg_pool2d(
        const(IMAGE), (3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=True
    ),
    "avg_pool3d": lambda: op.nn.avg_pool3d(const(BLOCK), (2, 2, 2), (1, 1, 1)),
    "adaptive_avg_pool2d 1": lambda: op.nn.adaptive_avg_pool2d(const(IMAGE), (1, 1)),
    "adaptive_avg_pool2d 3": lambda: op.nn.adaptive_avg_pool2d(const(IMAGE), (3, 9)),
    "batch_norm": lambda: relax.TupleGetItem(
        op.nn.batch_norm(
            const(IMAGE), *(const(np.abs(floats(4)) + np.float32(0.1)) for _ in range(4)), axis=1
        ),
        0,
    ),
    "batch_norm last": lambda: relax.TupleGetItem(
        op.nn.batch_norm(
            const(ROWS), *(const(np.abs(floats(12)) + np.float32(0.1)) for _ in range(4)),
            axis=2, scale=False,
        ),
        0,
    ),
    "layer_norm": lambda: op.nn.layer_norm(const(ROWS), const(floats(12)), const(floats(12)), -1),
    "layer_norm of two": lambda: op.nn.layer_norm(
        const(ROWS), const(floats(6, 12)), const(floats(6, 12)), [1, 2]
    ),
    "layer_norm inside": lambda: op.nn.layer_norm(
        const(ROWS), const(floats(6)), const(floats(6)), [1]
    ),
    "rms_norm": lambda: op.nn.rms_norm(const(ROWS), const(floats(12)), [-1]),
    "group_norm": lambda: op.nn.group_norm(
        const(IMAGE), const(floats(4)), const(floats(4)), num_groups=2, channel_axis=1, axes=[2, 3]
    ),
    "instance_norm": lambda: op.nn.instance_norm(
        const(IMAGE), const(floats(4)), const(floats(4)), channel_axis=1, axes=[2, 3]
    ),
    "softmax": lambda: op.nn.softmax(const(X), axis=1),
    "log_softmax": lambda: op.nn.log_softmax(const(X)),
    "matmul": lambda: op.matmul(const(ROWS), const(floats(12, 5))),
    "matmul of codes": lambda: op.matmul(
        const(INTEGERS.astype(np.int8)), const(INTEGERS.T.astype(np.int8)), out_dtype="int32"
    ),
    "conv2d of codes": lambda: op.nn.conv2d(
        const(np.clip(IMAGE * 30, -99, 99), "int8"), const(floats(3, 4, 3, 3) * 30, "int8"),
        out_dtype="int32", padding=1,
    ),
    "linear": lambda: op.linear(const(ROWS), const(floats(5, 12)), const(floats(5))),
    "outer": lambda: op.outer(const(floats(3)), const(floats(4))),
    "einsum": lambda: op.einsum((const(ROWS), const(floats(2, 12, 3))), "bij,bjk->bik"),
    "attention": lambda: op.nn.attention(const(HEADS), const(HEADS[::-1].copy()), const(HEADS)),
    "attention causal": lambda: op.nn.attention(
        const(HEADS), const(HEADS), const(HEADS), scale=tvm.tirx.FloatImm("float32", 0.2),
        causal_mask="TopLeft",
    ),
    "attention bias": lambda: op.nn.attention(
        const(HEADS), const(HEADS), const(HEADS), const(floats(2, 2, 6, 6))
    ),
    **{
        f"resize2d {method} {where} {size}": lambda method=method, where=where, size=size: (
            op.image.resize2d(
                const(IMAGE), size, method=method, coordinate_transformation_mode=where,
                rounding_method="floor" if where == "asymmetric" else "round",
            )
        )
        for method in ("nearest_neighbor", "linear", "cubic")
        for where in ("half_pixel", "align_corners", "asymmetric")
        for size in ((18, 27), (5, 4))[: 1 + (method == "nearest_neighbor")]
    },
    "grid_sample": lambda: op.image.grid_sample(
        const(IMAGE), const(np.tanh(floats(2, 2, 5, 6)))
    ),
}  # fmt: skip
MOVEMENT: dict[str, Case] = {
    "permute_dims": lambda: op.permute_dims(const(X), [0, 2, -1, 1]),
    "permute_dims all": lambda: op.permute_dims(const(X)),
    "reshape": lambda: op.reshape(const(X), (6, -1)),
    "flatten": lambda: op.flatten(const(X)),
    "expand_dims": lambda: op.expand_dims(const(X), [0, -1]),
    "squeeze": lambda: op.squeeze(const(X[:1, :, :1])),
    "squeeze one": lambda: op.squeeze(const(X[:1, :, :1]), 2),
    "broadcast_to": lambda: op.broadcast_to(const(X[:, :1]), (2, 3, 4, 6)),
    "concat": lambda: op.concat([const(X), const(WITHIN)], axis=-1),
    "stack": lambda: op.stack([const(X), const(WITHIN)], axis=1),
    "split": lambda: op.split(const(X), 3, axis=1),
    "split at": lambda: op.split(const(X), [1, 4], axis=3),
    "repeat": lambda: op.repeat(const(X), 2, axis=1),
    "repeat all": lambda: op.repeat(const(X), 2),
    "tile": lambda: op.tile(const(X), (2, 1, 1, 3, 1)),
    "tile fewer": lambda: op.tile(const(X), (2, 3)),
    "flip": lambda: op.flip(const(X), axis=2),
    "strided_slice": lambda: op.strided_slice(
        const(X), axes=[1, 3], begin=[0, -2], end=[2, 0], strides=[1, -2]
    ),
    "slice_scatter": lambda: op.slice_scatter(const(X), const(X[:, :, :2]), 0, 4, 2, axis=2),
    "take": lambda: op.take(const(X), const(PLACES), axis=1),
    "take of all": lambda: op.take(const(LINE[0, 0]), const(PLACES)),
    "take one": lambda: op.take(const(X), tvm.tirx.IntImm("int64", 1), axis=1),
    "take clip": lambda: op.take(const(X), const(PLACES + 1), axis=1, mode="clip"),
    "take wrap": lambda: op.take(const(X), const(PLACES + 1), axis=1, mode="wrap"),
    "gather_elements": lambda: op.gather_elements(const(X[0, 0]), const(PLACES), axis=1),
    "gather_nd": lambda: op.gather_nd(const(X[0]), const(PLACES[:, :2])),
    "scatter_elements": lambda: op.scatter_elements(
        const(X[0, 0]), const(PLACES), const(floats(2, 3)), axis=1, reduction="add"
    ),
    "scatter_nd": lambda: op.scatter_nd(
        const(X[0, 0]), const(np.int64([[1], [3]])), const(floats(2, 6))
    ),
    "index_tensor": lambda: op.index_tensor(
        const(X[0]), [const(np.int64([[1], [2]])), const(np.int64([0, 2]))]
    ),
    "index_put": lambda: op.index_put(
        const(X[0, 0]), (const(np.int64([0, 2])), const(np.int64([1, 3]))), const(floats(2))
    ),
    "one_hot": lambda: op.one_hot(
        const(PLACES), *(tvm.tirx.FloatImm("float32", v) for v in (1.5, -0.5)), 4, axis=-1
    ),
    "meshgrid": lambda: op.meshgrid([const(floats(3)), const(floats(4))], "ij"),
    "nn.pad": lambda: op.nn.pad(const(X), (0, 0, 1, 2, 0, 1, 3, 0), pad_value=0.5),
    "nn.pad reflect": lambda: op.nn.pad(const(X), (0, 0, 0, 0, 1, 2, 2, 1), pad_mode="reflect"),
    "tril": lambda: op.tril(const(X), -1),
    "triu": lambda: op.triu(const(X), 1),
    "eye": lambda: op.eye(3, 4, 1, "float32"),
    "arange": lambda: op.arange(1, 9, 2, "int64"),
    "shape_of": lambda: op.shape_to_tensor(op.shape_of(const(X))),
    "nn.dropout": lambda: relax.TupleGetItem(op.nn.dropout(const(X), 0.5), 0),
    "topk": lambda: op.topk(const(X), k=2, axis=-1, dtype="int64"),
    "topk smallest": lambda: op.topk(const(X), k=2, axis=1, ret_type="values", largest=False),
    "sort": lambda: op.sort(const(X), axis=2, descending=True),
    "argsort": lambda: op.argsort(const(X), axis=3, dtype="int64"),
}  # fmt: skip


def module_of(cases: Mapping[str, Case]) -> tvm.IRModule:
    """One function with the results of all cases."""
    return function_of([], lambda builder: relax.Tuple([builder.emit(c()) for c in cases.values()]))


GROUPS = {"elements": ELEMENTWISE, "layers": LAYERS, "places": MOVEMENT}


@pytest.mark.parametrize("cases", GROUPS.values(), ids=GROUPS)
def test_every_operator_is_what_tvm_computes(cases: Mapping[str, Case]) -> None:
    module = module_of(cases)
    found = iter(by_onnx_runtime(module))
    wrong = []
    for name, wanted in zip(cases, by_tvm(module), strict=True):
        for one in wanted if isinstance(wanted, list) else [wanted]:
            ours = next(found)
            same = (ours.shape, ours.dtype) == (one.shape, one.dtype)
            if not same or not np.allclose(ours, one, rtol=1e-4, atol=1e-5):
                wrong.append((name, ours.shape, one.shape, ours.dtype, one.dtype))
    assert not wrong


@pytest.mark.parametrize("dtype", ["int64", "int8"])
@pytest.mark.parametrize("bounds", [(0, np.inf), (-np.inf, 3), (1e30, np.inf), (-500, 1000)])
def test_bounds_of_integers_which_tvm_cannot_lower(bounds: tuple[float, float], dtype: str) -> None:
    codes, most = INTEGERS.astype(dtype), np.iinfo(dtype).max
    (found,) = by_onnx_runtime(module_of({"clip": lambda: op.clip(const(codes), *bounds)}))
    wanted = [min(max(int(code), bounds[0]), bounds[1], most) for code in codes.flat]
    assert found.dtype == codes.dtype and found.ravel().tolist() == wanted


def test_pixel_shuffle_which_tvm_cannot_lower() -> None:
    module = module_of({"nn.pixel_shuffle": lambda: op.nn.pixel_shuffle(const(IMAGE), 2)})
    wanted = IMAGE.reshape(2, 1, 2, 2, 9, 9).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 18, 18)
    np.testing.assert_array_equal(by_onnx_runtime(module)[0], wanted)
