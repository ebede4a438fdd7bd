"""Every operator's numpy reference agrees with ONNX Runtime; shapes that clash are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.core.errors import InternalError, ModelError
from tilewright.graph.network import Array, AttributeValue, TensorType
from tilewright.graph.operators import OPERATORS, results_text
from tilewright.graph.operators.elementwise import erf

RANDOM = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def onnx_result(operator: str, arrays: list[Any], named: dict[str, Any], constants: int) -> Any:
    """Run one ONNX node; the last `constants` arrays become initializers."""
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    fed = arrays[: len(arrays) - constants]
    kinds = {
        n: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, fed, strict=False)
    }
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **named)],
        "g",
        list(kinds.values()),
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(a, n)
            for n, a in zip(names[len(fed) :], arrays[len(fed) :], strict=True)
            if a is not None
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip(kinds, fed, strict=True)))[0]


def check(
    ours: tuple[str, list[Any], dict[str, AttributeValue]],
    theirs: tuple[str, list[Any], dict[str, Any]],
    constants: int = 0,
) -> None:
    name, arrays, named = ours
    operator = OPERATORS[name]
    got = operator.reference(tuple(arrays), named)
    kinds = tuple(TensorType(a.shape, str(a.dtype)) for a in arrays)
    inferred = operator.infer(kinds, named)
    assert (got.shape, str(got.dtype)) == (inferred.shape, inferred.dtype)
    assert operator.flop(kinds, inferred, named) >= 0
    wanted = onnx_result(*theirs, constants)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    if operator.anchor and arrays[0].dtype == np.float32:
        wide = operator.reference(tuple(a.astype(np.float64) for a in arrays), named)
        assert wide.dtype == np.float64
        np.testing.assert_allclose(wide, wanted, rtol=1e-4, atol=1e-4)


CONVOLUTIONS = [
    ((1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 1), (1, 0, 2, 1), (1, 1), 1),
    ((1, 2), (2, 2, 2, 2), (2, 2), 2),
    ((2, 2), (1, 1, 1, 1), (1, 1), 4),
]


@pytest.mark.parametrize(("strides", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolution(strides: Any, padding: Any, dilation: Any, groups: int) -> None:
    x, w = normal(2, 4, 9, 8), normal(8, 4 // groups, 3, 2)
    theirs = {"strides": strides, "pads": padding, "dilations": dilation, "group": groups}
    ours: dict[str, Any] = {
        "strides": strides, "padding": padding, "dilation": dilation, "groups": groups,
    }  # fmt: skip
    check(("conv2d", [x, w], ours), ("Conv", [x, w], theirs))
    w = normal(4, 3, 3, 2)
    ours["output_padding"] = (strides[0] - 1, 0)
    theirs["output_padding"] = list(ours["output_padding"])
    check(("conv2d_transpose", [x, w], ours), ("ConvTranspose", [x, w], theirs))


def test_matrix_products() -> None:
    x, w, b = normal(2, 3, 4), normal(4, 5), normal(6, 1, 4, 5)
    check(("dense", [x, w], {}), ("MatMul", [x, w], {}))
    check(("batch_matmul", [x, b], {"transpose_b": False}), ("MatMul", [x, b], {}))
    swapped = np.ascontiguousarray(b.swapaxes(-1, -2))
    check(("batch_matmul", [x, swapped], {"transpose_b": True}), ("MatMul", [x, b], {}))


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("strides", "padding"), [((2, 2), (1, 0, 1, 1)), ((1, 3), (0, 0, 0, 0))])
def test_pooling(strides: Any, padding: Any, include: bool) -> None:
    x = normal(1, 3, 8, 9) - 3
    ours: dict[str, Any] = {
        "kernel": (3, 2), "strides": strides, "padding": padding, "dilation": (1, 1),
    }  # fmt: skip
    theirs = {"kernel_shape": (3, 2), "strides": strides, "pads": padding}
    check(("max_pool2d", [x], ours), ("MaxPool", [x], theirs))
    check(
        ("max_pool2d", [x], {**ours, "dilation": (2, 2)}),
        ("MaxPool", [x], {**theirs, "dilations": (2, 2)}),
    )
    ours["count_include_pad"] = include
    check(("avg_pool2d", [x], ours), ("AveragePool", [x], {**theirs, "count_include_pad": include}))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Min", "Prod"])
def test_reductions(kind: str, keepdims: bool) -> None:
    x, axes = normal(2, 3, 4), np.array([0, 2], np.int64)
    check(
        (f"reduce_{kind.lower()}", [x], {"axes": (0, 2), "keepdims": keepdims}),
        (f"Reduce{kind}", [x, axes], {"keepdims": keepdims}),
        1,
    )


def test_normalizations() -> None:
    x = normal(2, 6, 5) * 10
    check(("softmax", [x], {"axis": 1}), ("Softmax", [x], {"axis": 1}))
    check(("log_softmax", [x], {"axis": 2}), ("LogSoftmax", [x], {"axis": 2}))
    s, b = normal(6, 5), normal(6, 5)
    check(
        ("layer_norm", [x, s, b], {"axis": 1, "epsilon": 1e-3}),
        ("LayerNormalization", [x, s, b], {"axis": 1, "epsilon": 1e-3}),
    )
    s, b = normal(6), normal(6)
    check(
        ("instance_norm", [x, s, b], {"epsilon": 1e-3}),
        ("InstanceNormalization", [x, s, b], {"epsilon": 1e-3}),
    )
    image = normal(1, 6, 3, 3)
    for size in (3, 5):
        named: dict[str, Any] = {"size": size, "alpha": 0.5, "beta": 0.75, "bias": 2.0}
        check(("lrn", [image], named), ("LRN", [image], named))


UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "negative": "Neg",
    "abs": "Abs", "erf": "Erf", "sin": "Sin", "cos": "Cos", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "reciprocal": "Reciprocal", "softplus": "Softplus",
    "hard_swish": "HardSwish", "identity": "Identity", "log": "Log", "sqrt": "Sqrt",
    "isnan": "IsNaN",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    x = np.concatenate([normal(50) * 3, np.array([0.5, 1.5, -2.5, 30, -30], np.float32)])
    if name in ("log", "sqrt"):
        x = np.abs(x)
    if name == "isnan":
        x[3] = np.nan
    check((name, [x], {}), (UNARY[name], [x], {}))


def test_unary_without_an_onnx_twin() -> None:
    x = np.linspace(-6, 6, 101)
    one = OPERATORS["silu"].reference((x,), {})
    np.testing.assert_allclose(one, x / (1 + np.exp(-x)), rtol=1e-13)
    two = OPERATORS["gelu"].reference((x,), {})
    wanted = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x]
    np.testing.assert_allclose(two, wanted, rtol=1e-6, atol=1e-14)
    three = OPERATORS["rsqrt"].reference((x * x + 1,), {})
    np.testing.assert_allclose(three, 1 / np.sqrt(x * x + 1))
    assert OPERATORS["not"].reference((np.array([True, False]),), {}).tolist() == [False, True]


def test_error_function_is_accurate_to_1e_12() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), [np.inf, -np.inf, -0.0, 0.46875]])
    assert np.abs(erf(x) - [math.erf(v) for v in x]).max() < 1e-14
    assert np.isnan(erf(np.array([np.nan])))[0]


PARAMETRIC = [
    ("leaky_relu", "LeakyRelu", {"alpha": 0.2}),
    ("elu", "Elu", {"alpha": 0.7}),
    ("celu", "Celu", {"alpha": 2.0}),
    ("celu", "Celu", {"alpha": -0.5}),
    ("thresholded_relu", "ThresholdedRelu", {"alpha": 0.3}),
    ("selu", "Selu", {"alpha": 1.5, "gamma": 1.1}),
    ("hard_sigmoid", "HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("shrink", "Shrink", {"bias": 0.2, "lambd": 0.7}),
    ("shrink", "Shrink", {"bias": 0.7, "lambd": 0.7}),
    ("shrink", "Shrink", {"bias": 0.2, "lambd": -0.7}),
]


@pytest.mark.parametrize(("name", "theirs", "named"), PARAMETRIC)
def test_parametric(name: str, theirs: str, named: dict[str, Any]) -> None:
    x = normal(60) * 2
    check((name, [x], named), (theirs, [x], named))


def test_clip_and_cast() -> None:
    x = normal(40) * 3
    low, high = np.array(-1, np.float32), np.array(0.5, np.float32)
    limits: dict[str, Any] = {"minimum": -1.0, "maximum": 0.5}
    check(("clip", [x], limits), ("Clip", [x, low, high], {}), 2)
    check(("clip", [x], {"minimum": -1.0, "maximum": "inf"}), ("Clip", [x, low], {}), 1)
    check(("cast", [x], {"dtype": "int32"}), ("Cast", [x], {"to": TensorProto.INT32}))
    check(("cast", [x], {"dtype": "bool"}), ("Cast", [x], {"to": TensorProto.BOOL}))


BINARY = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
    "maximum": "Max", "minimum": "Min", "equal": "Equal", "less": "Less", "greater": "Greater",
    "less_equal": "LessOrEqual", "greater_equal": "GreaterOrEqual", "prelu": "PRelu",
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    a, b = normal(2, 3, 4), normal(3, 1)
    if name == "power":
        a = np.abs(a)
    if name == "equal":
        a, b = np.round(a), np.round(b)
    check((name, [a, b], {}), (BINARY[name], [a, b], {}))


def test_integers_and_logic() -> None:
    a, b = RANDOM.integers(-20, 20, 40), RANDOM.integers(1, 6, 40) * RANDOM.choice([-1, 1], 40)
    check(("divide", [a, b], {}), ("Div", [a, b], {}))
    check(("modulo", [a, b], {}), ("Mod", [a, b], {}))
    check(("remainder", [a, b], {}), ("Mod", [a, b], {"fmod": 1}))
    bits = (RANDOM.integers(0, 64, 40)).astype(np.uint64)
    for name, direction in (("shift_left", "LEFT"), ("shift_right", "RIGHT")):
        given = [a.astype(np.uint64), bits]
        check((name, given, {}), ("BitShift", given, {"direction": direction}))
    p, q = a > 0, b > 0
    check(("and", [p, q], {}), ("And", [p, q], {}))
    check(("or", [p, q], {}), ("Or", [p, q], {}))
    x, y = normal(40), normal(3, 1)
    check(("where", [p, x, y], {}), ("Where", [p, x, y], {}))


def test_movements() -> None:
    x = normal(2, 3, 4)
    shape = np.array([4, 6], np.int64)
    check(("reshape", [x], {"shape": (4, 6)}), ("Reshape", [x, shape], {}), 1)
    check(("transpose", [x], {"permutation": (2, 0, 1)}), ("Transpose", [x], {"perm": (2, 0, 1)}))
    check(("concat", [x, x], {"axis": 1}), ("Concat", [x, x], {"axis": 1}))
    grown = np.array([5, 2, 3, 4], np.int64)
    check(("expand", [x], {"shape": (5, 2, 3, 4)}), ("Expand", [x, grown], {}), 1)
    indices = np.array([[0, -1], [2, 1]])
    check(("gather", [x, indices], {"axis": 1}), ("Gather", [x, indices], {"axis": 1}))
    bounds = [np.array(v, np.int64) for v in ([1, 2, 3], [2, -9, 0], [0, 1, 2], [1, -1, -2])]
    named: dict[str, Any] = {"starts": (1, 2, 3), "stops": (2, -1, 0), "steps": (1, -1, -2)}
    check(("slice", [x], named), ("Slice", [x, *bounds], {}), 4)
    for mode in ("constant", "reflect", "edge"):
        pads = np.array([1, 0, 2, 0, 1, 3], np.int64)
        fill = np.array(1.5, np.float32)
        named = {"before": (1, 0, 2), "after": (0, 1, 3), "value": 1.5, "mode": mode}
        check(("pad", [x], named), ("Pad", [x, pads, fill], {"mode": mode}), 2)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize(
    "mode", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
@pytest.mark.parametrize("after", [(7, 10), (3, 2), (1, 5)])
def test_resize(mode: str, rounding: str, after: tuple[int, int]) -> None:
    x = normal(1, 2, 4, 5)
    shape = (1, 2, *after)
    scales = tuple(a / b for a, b in zip(shape, x.shape, strict=True))
    named: dict[str, Any] = {
        "shape": shape, "coordinate": mode, "rounding": rounding, "scales": scales,
    }  # fmt: skip
    theirs = {"coordinate_transformation_mode": mode, "nearest_mode": rounding, "mode": "nearest"}
    sizes = np.array(shape, np.int64)
    check(("resize_nearest", [x], named), ("Resize", [x, None, None, sizes], theirs), 3)


def test_shifts_by_negative_numbers_and_by_all_bits() -> None:
    x, bits = np.array([-3, 5, -3, 5], np.int8), np.array([8, 8, -1, -1], np.int8)
    assert OPERATORS["shift_left"].reference((x, bits), {}).tolist() == [0, 0, 0, 0]
    assert OPERATORS["shift_right"].reference((x, bits), {}).tolist() == [-1, 0, -1, 0]


def test_interpolation_is_a_product_with_a_banded_matrix() -> None:
    x, weights = normal(2, 5, 3), normal(2, 4)
    indices = np.array([[0, 2, 4, 1], [1, 2, 0, 4]], np.int32)
    matrix = np.zeros((4, 5), np.float32)
    for row in range(4):
        for tap in range(2):
            matrix[row, indices[tap, row]] += weights[tap, row]
    operator, arrays = OPERATORS["interpolate"], (x, indices, weights)
    kinds = tuple(TensorType(a.shape, str(a.dtype)) for a in arrays)
    result = operator.infer(kinds, {"axis": 1})
    assert result == TensorType((2, 4, 3))
    assert operator.flop(kinds, result, {"axis": 1}) == 2 * 2 * 24
    found = operator.reference(arrays, {"axis": 1})
    np.testing.assert_allclose(found, matrix @ x, rtol=1e-5, atol=1e-6)


def test_every_operator_is_known() -> None:
    assert all(operator.name == name for name, operator in OPERATORS.items())
    assert {n for n, o in OPERATORS.items() if o.movement} == {
        "reshape", "transpose", "slice", "concat", "pad", "expand", "gather", "resize_nearest",
        "interpolate", "cache_write",
    }  # fmt: skip


CONVOLUTION: dict[str, Any] = {
    "strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1,
}  # fmt: skip
WINDOW: dict[str, Any] = {
    "kernel": (3, 2), "strides": (2, 2), "padding": (1, 0, 0, 0), "dilation": (1, 1),
}  # fmt: skip
ATTENTION: dict[str, Any] = {
    "heads": 4, "key_heads": 2, "scale": 1.0, "causal": False, "fill": "-inf",
}  # fmt: skip
CLASHES = [
    ("attention", [(1, 5, 8), (1, 7, 6), (1, 7, 6)], ATTENTION),
    ("attention", [(1, 5, 8), (1, 7, 4), (1, 6, 4)], ATTENTION),
    ("attention", [(1, 5, 8), (1, 7, 4)], ATTENTION),
    ("attention", [(5, 8), (7, 4), (7, 4)], ATTENTION),
    ("attention", [(1, 5, 8), (1, 7, 4), (1, 7, 4)], {**ATTENTION, "key_heads": 3}),
    ("attention", [(1, 5, 8), (1, 7, 4), (1, 7, 4), (7, 5)], ATTENTION),
    ("conv2d", [(1, 3, 8, 8), (4, 2, 3, 3)], CONVOLUTION),
    ("conv2d", [(1, 3, 2, 2), (4, 3, 3, 3)], CONVOLUTION),
    ("dense", [(2, 3), (4, 5)], {}),
    ("batch_matmul", [(2, 3, 4), (3, 4, 5)], {"transpose_b": False}),
    ("add", [(2, 3), (4,)], {}),
    ("reshape", [(2, 3)], {"shape": (7,)}),
    ("transpose", [(2, 3)], {"permutation": (0, 0)}),
    ("concat", [(2, 3), (3, 4)], {"axis": 0}),
    ("softmax", [(2, 3)], {"axis": 2}),
    ("layer_norm", [(2, 3), (4,), (3,)], {"axis": 1, "epsilon": 0.0}),
    ("expand", [(2, 3)], {"shape": (3,)}),
    ("relu", [(2,), (2,)], {}),
    ("conv2d", [(1, 4, 8, 8), (3, 2, 3, 3)], {**CONVOLUTION, "groups": 2}),
    ("conv2d", [(1, 4, 8), (3, 4, 3, 3)], CONVOLUTION),
    ("conv2d", [(1, 4, 8, 8), (4, 4, 3, 3)], {**CONVOLUTION, "groups": 0}),
    ("conv2d", [(1, 4, 4, 8), (4, 4, 3, 3)], {**CONVOLUTION, "dilation": (2, 1)}),
    ("batch_matmul", [(4,), (4, 5)], {"transpose_b": False}),
    ("batch_matmul", [(2, 3, 4), (3, 4, 5)], {"transpose_b": False}),
    ("batch_matmul", [(3, 4), (4, 5)], {"transpose_b": True}),
    ("reduce_sum", [(2, 3)], {"axes": (2,), "keepdims": True}),
    ("reshape", [(2, 0)], {"shape": (0, -1)}),
    ("slice", [(4, 5)], {"starts": (0,), "stops": (4,), "steps": (1,)}),
    ("slice", [(4,)], {"starts": (0,), "stops": (5,), "steps": (1,)}),
    ("slice", [(4,)], {"starts": (-2,), "stops": (4,), "steps": (1,)}),
    ("slice", [(4,)], {"starts": (0,), "stops": (4,), "steps": (0,)}),
    ("concat", [], {"axis": 0}),
    ("concat", [(2, 3), (2, 3, 1)], {"axis": 1}),
    ("pad", [(2, 3)], {"before": (0, -1), "after": (0, 0), "value": 0.0, "mode": "edge"}),
    ("pad", [(2, 3)], {"before": (0,), "after": (0,), "value": 0.0, "mode": "edge"}),
    ("pad", [(2, 3)], {"before": (0, 1), "after": (0, 3), "value": 0.0, "mode": "reflect"}),
    ("pad", [(2, 3)], {"before": (0, 1), "after": (0, 1), "value": 0.0, "mode": "wrap"}),
    ("gather", [(2, 3), (2,)], {"axis": 0}),
    ("instance_norm", [(2, 3), (3,), (3,)], {"epsilon": 0.0}),
    ("instance_norm", [(2, 3, 4), (3,), (4,)], {"epsilon": 0.0}),
    ("lrn", [(2,)], {"size": 3, "alpha": 1.0, "beta": 0.5, "bias": 1.0}),
    ("max_pool2d", [(2, 3, 4)], WINDOW),
    ("max_pool2d", [(1, 2, 1, 4)], WINDOW),
]


@pytest.mark.parametrize(("name", "shapes", "named"), CLASHES)
def test_clashing_shapes_are_refused(name: str, shapes: Any, named: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"^{name}: "):
        OPERATORS[name].infer(tuple(TensorType(shape) for shape in shapes), named)


def test_clashing_types_are_refused() -> None:
    with pytest.raises(ModelError, match="float32, int64"):
        OPERATORS["add"].infer((TensorType((2,)), TensorType((2,), "int64")), {})


BACK: dict[str, Any] = {**CONVOLUTION, "output_padding": (0, 0), "groups": 2}
WORK = [
    # 4 × 4 results of 4 filters, each the sum of 72 products
    ("conv2d", [(1, 8, 6, 6), (4, 8, 3, 3)], CONVOLUTION, 2 * 16 * 4 * 72),
    # each of 2 × 36 inputs goes to 3 filters of its group, 9 times
    ("conv2d_transpose", [(1, 2, 6, 6), (2, 3, 3, 3)], BACK, 2 * 72 * 3 * 9),
    ("dense", [(2, 3, 7), (7, 5)], {}, 2 * 30 * 7),
    ("batch_matmul", [(2, 3, 7), (2, 5, 7)], {"transpose_b": True}, 2 * 30 * 7),
    # windows of six elements in 3 × 4 places
    ("max_pool2d", [(1, 2, 6, 8)], WINDOW, 2 * 3 * 4 * 6),
    ("avg_pool2d", [(1, 2, 6, 8)], {**WINDOW, "count_include_pad": True}, 2 * 3 * 4 * 6),
    ("reduce_sum", [(2, 3, 4)], {"axes": (1,), "keepdims": False}, 24),
    # scores of 4 heads for 5 × 7 pairs, each a product of 2, a softmax, and a part of 3 sums
    ("attention", [(1, 5, 8), (1, 7, 4), (1, 7, 6)], ATTENTION, 4 * 5 * 7 * (2 * 2 + 5 + 2 * 3)),
    (
        "attention",
        [(1, 5, 8), (1, 7, 4), (1, 7, 6)],
        {**ATTENTION, "causal": True},
        4 * (3 + 4 + 5 + 6 + 7) * (2 * 2 + 5 + 2 * 3),
    ),
    ("softmax", [(2, 3)], {"axis": 1}, 5 * 6),
    ("log_softmax", [(2, 3)], {"axis": 1}, 5 * 6),
    ("layer_norm", [(2, 3), (3,), (3,)], {"axis": 1, "epsilon": 0.0}, 8 * 6),
    ("rms_norm", [(2, 3), (3,)], {"axis": 1, "epsilon": 0.0}, 5 * 6),
    ("instance_norm", [(2, 3, 4), (3,), (3,)], {"epsilon": 0.0}, 8 * 24),
    # for each of five neighbours a square and a sum, and four more
    ("lrn", [(1, 6, 2, 2)], {"size": 5, "alpha": 1.0, "beta": 0.5, "bias": 1.0}, 14 * 24),
    ("add", [(2, 3), (3,)], {}, 6),
    ("transpose", [(2, 3)], {"permutation": (1, 0)}, 0),
    ("concat", [(2, 3), (2, 4)], {"axis": 1}, 0),
    ("gather", [(5, 3), TensorType((2,), "int64")], {"axis": 0}, 0),
    (
        "interpolate",
        [(2, 5, 3), TensorType((4, 7), "int32"), (4, 7)],
        {"axis": 1},
        2 * 4 * (2 * 7 * 3),
    ),
]


@pytest.mark.parametrize(("name", "shapes", "named", "flop"), WORK)
def test_work(name: str, shapes: list[Any], named: dict[str, Any], flop: int) -> None:
    """A multiplication and an addition are two operations; what only moves data has none."""
    operator = OPERATORS[name]
    kinds = tuple(s if isinstance(s, TensorType) else TensorType(s) for s in shapes)
    assert operator.flop(kinds, operator.infer(kinds, named), named) == flop


def test_opaque_has_types_but_no_reference() -> None:
    kinds = (TensorType((1, 3)), TensorType((2,), "int64"))
    named: dict[str, Any] = {"model": "", "results": results_text(kinds), "output_index": 1}
    assert OPERATORS["opaque"].infer((), named) == kinds[1]
    with pytest.raises(InternalError):
        OPERATORS["opaque"].reference((), named)


def test_what_a_mask_hides_has_a_code_though_its_quotient_overflows() -> None:
    """The lowest single by 0.01 is beyond all singles; the hidden key's share is zero."""
    q, k = np.ones((1, 1, 4), np.int8), np.ones((1, 2, 4), np.int8)
    v = np.array([[[1, 2, 3, 4], [5, 6, 7, 8]]], np.int8)
    coding = np.array([[1, 0.01, -128, 127], [0.1, 1 / 255, 0, 255]], np.float32)
    mask = np.array([0, np.finfo(np.float32).min], np.float32)
    named = {"heads": 1, "key_heads": 1, "masked": 0}
    operator = OPERATORS["quantized_attention"]
    with np.errstate(all="raise"):
        found = operator.compute(q, k, v, coding, np.zeros(3, np.int32), mask, **named)
    np.testing.assert_array_equal(found, 255 * v[:, :1].astype(np.int32))
