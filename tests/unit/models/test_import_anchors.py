"""Convolutions, pooling, products, norms and reductions against ONNX Runtime."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import check, check_node, few, int64, model_of, normal, unfolded
from tilewright.core.errors import ModelError

sizes = st.integers(1, 3)
modes = st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])


@st.composite
def windows(draw: st.DrawFn, rank: int, *, dilate: bool = True) -> dict[str, Any]:
    mode = draw(modes)
    named: dict[str, Any] = {
        "kernel_shape": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
        "strides": draw(st.lists(sizes, min_size=rank, max_size=rank)),
    }
    if mode == "NOTSET":
        top = [draw(st.integers(0, k - 1)) for k in named["kernel_shape"]]
        bottom = [draw(st.integers(0, k - 1)) for k in named["kernel_shape"]]
        named["pads"] = top + bottom
        if dilate:
            named["dilations"] = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    else:
        named["auto_pad"] = mode
    return named


@few
@given(st.integers(1, 3), st.data())
def test_convolution(rank: int, data: st.DataObject) -> None:
    named = data.draw(windows(rank))
    groups, opset = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([9, 11, 22]))
    x = normal(2, 4, *(9, 8, 7)[:rank])
    weight = normal(8, 4 // groups, *named["kernel_shape"], seed=1)
    constants = {"w": weight} | ({"b": normal(8, seed=2)} if data.draw(st.booleans()) else {})
    graph = check_node("Conv", {"x": x}, constants=constants, opset=opset, group=groups, **named)
    assert "conv2d" in {node.operator for node in graph.nodes}
    if "b" in constants and rank == 2:
        bias = next(node for node in graph.nodes if node.operator == "add").inputs[1]
        assert graph.types[bias].shape == (8, 1, 1)


@few
@given(st.integers(1, 3), st.data())
def test_transposed_convolution(rank: int, data: st.DataObject) -> None:
    named = data.draw(windows(rank))
    groups = data.draw(st.sampled_from([1, 2]))
    extra = [data.draw(st.integers(0, stride - 1)) for stride in named["strides"]]
    if "auto_pad" not in named:
        named["output_padding"] = extra
    x = normal(1, 4, *(6, 5, 4)[:rank])
    weight = normal(4, 3, *named["kernel_shape"], seed=1)
    check_node(
        "ConvTranspose", {"x": x}, constants={"w": weight, "b": normal(3 * groups, seed=2)},
        opset=11, group=groups, **named,
    )  # fmt: skip


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [[1, 3], [2, 1, 4], [1]])
def test_a_transposed_convolution_with_strides_beyond_its_kernel_adds_nothing_behind(
    kernel: list[int], automatic: str
) -> None:
    check_node(
        "ConvTranspose", {"x": normal(1, 2, *(4, 3, 2)[: len(kernel)])},
        constants={"w": normal(2, 2, *kernel)},
        strides=[3] * len(kernel), auto_pad=automatic,
    )  # fmt: skip


def test_transposed_convolution_with_output_shape() -> None:
    check_node(
        "ConvTranspose", {"x": normal(1, 2, 5, 5)}, constants={"w": normal(2, 2, 3, 3)},
        strides=[2, 2], output_shape=[10, 10], kernel_shape=[3, 3],
    )  # fmt: skip


@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_UPPER"])
def test_output_shape_beyond_what_the_kernel_reaches(automatic: str) -> None:
    graph = check_node(
        "ConvTranspose", {"x": normal(1, 2, 3, 3)},
        constants={"w": normal(2, 2, 3, 3), "b": normal(2)},
        strides=[3, 2], output_shape=[10, 8], auto_pad=automatic,
    )  # fmt: skip
    assert "pad" in {node.operator for node in graph.nodes}


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(
    "named",
    [
        {"pads": [1, 0, 0, 1], "strides": [2, 2]},
        {"ceil_mode": 1, "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"dilations": [2, 1]},
    ],
)
def test_norm_pooling(p: int, named: dict[str, Any]) -> None:
    x = normal(1, 3, 7, 8)
    check_node("LpPool", {"x": x}, opset=18, kernel_shape=[2, 3], p=p, **named)


def test_norm_pooling_over_one_axis() -> None:
    check_node("LpPool", {"x": normal(1, 3, 7)}, opset=18, kernel_shape=[3], strides=[2], p=2)


def carried(operator: str, *shape: int, **named: Any) -> Any:
    """The node that an opaque node carries along, of an import of one node."""
    node = helper.make_node(operator, ["x"], ["y"], name="node", **named)
    model = model_of([node], {"x": normal(*shape)}, opset=19)
    (opaque,) = (node for node in unfolded(model).nodes if node.operator == "opaque")
    return onnx.ModelProto.FromString(b64decode(str(opaque.attribute("model")))).graph.node[0]


def test_norm_pooling_over_three_axes_has_its_padding_written_out() -> None:
    node = carried(
        "LpPool", 1, 2, 5, 6, 4, kernel_shape=[2, 3, 2], strides=[2, 2, 2], auto_pad="SAME_LOWER"
    )
    found = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert found["pads"] == [1, 1, 0, 0, 0, 0] and "auto_pad" not in found
    assert found["kernel_shape"] == [2, 3, 2] and found["ceil_mode"] == 0
    assert carried("LpPool", 1, 2, 5, 6, 5, kernel_shape=[2, 3, 2], strides=[2, 3, 1])


def test_disputed_norm_pooling_over_three_axes_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'node' \('LpPool'\): ceil_mode over 3 axes"):
        carried("LpPool", 1, 2, 5, 6, 4, kernel_shape=[2, 3, 2], strides=[2] * 3, ceil_mode=1)


def test_regions_are_scaled_ahead() -> None:
    inputs = {"x": normal(1, 2, 8, 9), "r": normal(3, 4), "b": np.zeros(3, np.int64)}
    for named, count in (({"spatial_scale": 0.5}, 1), ({}, 0)):
        node = helper.make_node("RoiAlign", list(inputs), ["y"], name="node", **named)
        graph = unfolded(model_of([node], inputs, opset=16))
        assert [n.operator for n in graph.nodes] == ["multiply"] * count + ["opaque"]
    node = helper.make_node("RoiAlign", list(inputs), ["y"], name="node", mode="max")
    with pytest.raises(ModelError, match="'node'.*mode 'max'"):
        unfolded(model_of([node], inputs, opset=16))


@few
@given(st.sampled_from(["MaxPool", "AveragePool"]), st.integers(1, 3), st.data())
def test_pooling(operator: str, rank: int, data: st.DataObject) -> None:
    maximum = operator == "MaxPool"
    named = data.draw(windows(rank, dilate=maximum))
    opset = data.draw(st.sampled_from([10, 11, 19]))
    named["ceil_mode"] = data.draw(st.integers(0, 1)) if "auto_pad" not in named else 0
    if not maximum:
        named["count_include_pad"] = data.draw(st.integers(0, 1))
    x = normal(1, 2, *(8, 11, 7)[:rank])
    assume(_undisputed(x.shape[2:], named))
    check_node(operator, {"x": x}, opset=opset, **named)


def _undisputed(extents: tuple[int, ...], named: dict[str, Any]) -> bool:
    """Cases where ONNX Runtime runs and gives the shape that ONNX infers.

    The two differ about a last window that starts behind the input.
    """
    rank = len(extents)
    pairs = zip(named["kernel_shape"], named["strides"], strict=True)
    if "pads" not in named:
        return all(kernel >= stride for kernel, stride in pairs)
    for i, (kernel, stride) in enumerate(pairs):
        before, after = named["pads"][i], named["pads"][i + rank]
        span = (kernel - 1) * named.get("dilations", [1] * rank)[i] + 1
        last = -(-(extents[i] + before + after - span) // stride) * stride
        if named["ceil_mode"] and last >= extents[i] + before:
            return False
    return True


@pytest.mark.parametrize("named", [{}, {"count_include_pad": 0}, {"count_include_pad": 1}])
@pytest.mark.parametrize(
    "pads", [(0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1), (1, 1), (1,) * 6]
)
def test_averages_never_count_what_rounding_up_adds(
    named: dict[str, int], pads: tuple[int, ...]
) -> None:
    """Windows of 3 × 3, or 3, every two elements: the last of 6 × 6 reaches beyond them, with
    padding and without. Of it the padding counts where it is to, and what lies behind never does.
    """
    rank = len(pads) // 2
    graph = check_node(
        "AveragePool", {"x": normal(1, 2, *[6] * rank) + 3}, opset=19, kernel_shape=[3] * rank,
        strides=[2] * rank, pads=list(pads), ceil_mode=1, **named,
    )  # fmt: skip
    assert "avg_pool2d" in {node.operator for node in graph.nodes}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_largest_byte_of_a_volume(dtype: str) -> None:
    """Padding is the least byte there is."""
    x = np.random.default_rng(0).integers(-90, 90, (1, 2, 5, 6, 4)).astype(dtype)
    check_node("MaxPool", {"x": x}, opset=19, kernel_shape=[3] * 3, strides=[2] * 3, pads=[1] * 6)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
def test_one_window_around_everything_is_as_large_as_that(operator, pads) -> None:
    """EfficientNet of transformers pools 4 × 4 by windows of 2,560 × 2,560, rounded up."""
    graph = check_node(
        operator, {"x": normal(1, 2, 5, 4) + 3}, opset=22, kernel_shape=[2560, 7],
        strides=[2560, 7], pads=list(pads), ceil_mode=1,
    )  # fmt: skip
    (pool,) = (node for node in graph.nodes if "pool" in node.operator)
    assert pool.named["kernel"] == (5 + pads[0] + pads[2], 4 + pads[1] + pads[3])


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("extents", [(5,), (5, 4), (2, 3, 4)])
def test_global_pooling(operator: str, extents: tuple[int, ...]) -> None:
    check_node(operator, {"x": normal(2, 3, *extents)})


@few
@given(st.booleans(), st.booleans(), st.booleans(), st.sampled_from([(1.0, 1.0), (0.5, 2.0)]),
       st.sampled_from([(6,), (1, 6), (4, 1), ()]), st.sampled_from([9, 13]))  # fmt: skip
def test_gemm(
    left: bool, right: bool, known: bool, factors: tuple[float, float], c: tuple[int, ...],
    opset: int,
) -> None:  # fmt: skip
    a = normal(*((5, 4) if left else (4, 5)))
    b = normal(*((6, 5) if right else (5, 6)), seed=1)
    named = {"transA": int(left), "transB": int(right), "alpha": factors[0], "beta": factors[1]}
    order = ["a", "b", "c"]
    given_c = {"c": normal(*c, seed=2)}
    if known:
        graph = check_node("Gemm", {"a": a}, constants={"b": b, **given_c}, opset=opset, **named)
        assert "dense" in {node.operator for node in graph.nodes}
    else:
        check_node("Gemm", {"a": a, "b": b}, constants=given_c, order=order, opset=opset, **named)


@pytest.mark.parametrize(
    ("a", "b"),
    [((4, 5), (5, 6)), ((2, 3, 4, 5), (5, 6)), ((5,), (5, 6)), ((4, 5), (5,)), ((5,), (5,)),
     ((2, 4, 5), (5,)), ((5,), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (2, 5, 6)),
     ((2, 4, 5), (1, 5, 6))],
)  # fmt: skip
@pytest.mark.parametrize("known", ["neither", "left", "right"])
def test_matrix_product(a: tuple[int, ...], b: tuple[int, ...], known: str) -> None:
    arrays = {"a": normal(*a), "b": normal(*b, seed=1)}
    constants = {"left": {"a"}, "right": {"b"}}.get(known, set[str]())
    graph = check_node(
        "MatMul",
        {name: array for name, array in arrays.items() if name not in constants},
        constants={name: arrays[name] for name in constants},
        order=["a", "b"],
        opset=13,
    )
    if known == "right" and len(b) == 2:
        assert "dense" in {node.operator for node in graph.nodes}


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [9, 11, 13, 22])
@pytest.mark.parametrize("axis", [None, -1, 0, 1, 2])
def test_softmax(operator: str, opset: int, axis: int | None) -> None:
    named = {} if axis is None else {"axis": axis}
    check_node(operator, {"x": normal(2, 3, 4)}, opset=opset, **named)


@pytest.mark.parametrize("opset", [9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_batch_normalization(opset: int, shape: tuple[int, ...]) -> None:
    vectors = {name: np.abs(normal(3, seed=i)) for i, name in enumerate("sbmv")}
    graph = check_node(
        "BatchNormalization", {"x": normal(*shape)}, constants=vectors, opset=opset, epsilon=1e-3
    )
    constant = next(node for node in graph.nodes if node.operator == "multiply").inputs[1]
    assert graph.types[constant].shape == (3, *(1 for _ in shape[2:]))


def test_batch_normalization_folds_into_the_convolution_before_it() -> None:
    vectors = {name: np.abs(normal(3, seed=i)) for i, name in enumerate("sbmv")}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", *"sbmv"], ["y"], name="norm"),
    ]
    x = normal(1, 2, 5, 5)
    model = model_of(nodes, {"x": x}, constants={"w": normal(3, 2, 3, 3), **vectors})
    graph = check(model, {"x": x})
    assert [node.operator for node in graph.nodes] == ["conv2d", "add"]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response(size: int) -> None:
    check_node("LRN", {"x": normal(1, 7, 3, 3)}, size=size, alpha=0.1, beta=0.6, bias=2.0)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5)])
def test_instance_normalization(shape: tuple[int, ...]) -> None:
    vectors = {"s": normal(3), "b": normal(3, seed=1)}
    check_node("InstanceNormalization", {"x": normal(*shape)}, constants=vectors, opset=9)


@pytest.mark.parametrize("axis", [-1, 1, -3])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization(axis: int, bias: bool) -> None:
    shape = (2, 3, 4)[axis:]
    vectors = {"s": normal(*shape)} | ({"b": normal(*shape, seed=1)} if bias else {})
    graph = check_node(
        "LayerNormalization", {"x": normal(2, 3, 4)}, constants=vectors, axis=axis, epsilon=1e-3
    )
    assert [node.operator for node in graph.nodes] == ["layer_norm"]


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("outputs", [("y", "mean", "deviation"), ("y", "", "deviation")])
def test_layer_normalization_tells_what_it_normalised_by(
    axis: int, outputs: tuple[str, ...]
) -> None:
    check_node(
        "LayerNormalization", {"x": normal(2, 3, 4)}, outputs=outputs, axis=axis,
        constants={"s": normal(*(2, 3, 4)[axis:])},
    )  # fmt: skip


@pytest.mark.parametrize(("opset", "count"), [(18, 2), (21, 6)])
def test_group_normalization(opset: int, count: int) -> None:
    vectors = {"s": normal(count), "b": normal(count, seed=1)}
    check_node(
        "GroupNormalization", {"x": normal(2, 6, 3, 3)}, constants=vectors, opset=opset,
        num_groups=2,
    )  # fmt: skip


def test_root_mean_square_normalization() -> None:
    scale = {"s": normal(4)}
    check_node("RMSNormalization", {"x": normal(2, 3, 4)}, constants=scale, opset=23, axis=-1)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("p", [1, 2])
def test_division_by_a_norm(p: int, axis: int) -> None:
    x = normal(2, 3, 4)
    x[0, :, 0] = x[1, 2] = 0
    check_node("LpNormalization", {"x": x}, p=p, axis=axis)


@pytest.mark.parametrize("named", [{"strides": [2, 1]}, {"pads": [1, 0, 1, 2]},
                                   {"dilations": [2, 3], "pads": [2, 2, 2, 2]}])  # fmt: skip
def test_an_image_of_columns(named: dict[str, list[int]]) -> None:
    image, block = (7, 6), (3, 2)
    pads, strides, dilations = (
        named.get(name, [fill] * (2 * len(block)))
        for name, fill in (("pads", 0), ("strides", 1), ("dilations", 1))
    )
    places = [
        (image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(2)
    ]
    constants = {"i": int64(*image), "b": int64(*block)}
    columns = normal(2, 3 * 6, places[0] * places[1])
    check_node("Col2Im", {"x": columns}, constants=constants, opset=18, **named)


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
              "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]  # fmt: skip


@pytest.mark.parametrize("operator", REDUCTIONS)
@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("axes", [None, (1,), (-1, 0)])
def test_reduction(operator: str, opset: int, axes: tuple[int, ...] | None) -> None:
    as_input = opset >= 18 or (opset >= 13 and operator == "ReduceSum")
    keep = 0 if axes == (1,) else 1
    constants = {"axes": int64(*axes)} if as_input and axes else {}
    named: dict[str, Any] = {"axes": axes} if axes and not as_input else {}
    x = np.abs(normal(2, 3, 4)) + 0.1
    check_node(operator, {"x": x}, constants=constants, opset=opset, keepdims=keep, **named)


@pytest.mark.parametrize(
    "operator", ["ReduceSum", "ReduceMax", "ReduceL1", "ReduceL2", "ReduceSumSquare",
                 "ReduceLogSumExp"],
)  # fmt: skip
def test_reduction_over_no_axes(operator: str) -> None:
    check_node(operator, {"x": normal(2, 3)}, opset=18, noop_with_empty_axes=1)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_reduction_of_nothing(operator: str, dtype: str) -> None:
    constants = {"axes": int64(1)}
    check_node(operator, {"x": np.zeros((2, 0, 4), dtype)}, constants=constants, opset=20)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_reduction_of_booleans(operator: str) -> None:
    check_node(operator, {"x": normal(3, 4) > 0}, constants={"axes": int64(1)}, opset=20)


@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_of_whole_numbers_are_refused(operator: str) -> None:
    node = helper.make_node(operator, ["x"], ["y"], name="node")
    with pytest.raises(ModelError, match="'node'.*elements of type int32"):
        unfolded(model_of([node], {"x": np.ones((2, 3), np.int32)}))
