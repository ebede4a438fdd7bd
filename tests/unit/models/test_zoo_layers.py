"""The layers that networks of the zoo are made of: what they compute, and how weights are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from helpers.networks.onnx_models import normal, reference
from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, ssd_anchors


def parameters(graph: GraphBuilder) -> dict[str, Any]:
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.model.graph.initializer
    }


def computed(graph: GraphBuilder, tensor: str, x: Any) -> Any:
    """What ONNX Runtime makes of the tensor that was computed last, for input `x`."""
    graph.output(tensor, "result")
    return reference(graph.model, {"x": x})["result"]


def with_input(*shape: int, **named: int) -> tuple[GraphBuilder, str]:
    graph = GraphBuilder("test", **named)
    return graph, graph.input(shape, name="x")


def test_a_convolution_keeps_the_scale_of_what_it_reads() -> None:
    """Weights have a variance of gain / fan-in, the bias a deviation of 0.05."""
    graph, x = with_input(64, 5, 6)
    grouped = graph.conv(x, Convolution(512, (3, 1), groups=2, bias=True, gain=2.0), "a")
    graph.conv(x, Convolution(256, 3), "b")
    found = parameters(graph)
    assert graph.shape(grouped) == (1, 512, 3, 6)
    assert found["a.weight"].shape == (512, 32, 3, 1)
    assert found["a.weight"].std() == pytest.approx(np.sqrt(2 / 96), rel=0.03)
    assert found["a.bias"].std() == pytest.approx(0.05, rel=0.15)
    assert found["b.weight"].std() == pytest.approx(np.sqrt(1.33 / 576), rel=0.03)
    assert "b.bias" not in found
    np.testing.assert_allclose(found["b.weight"].sum(axis=(1, 2, 3)), 0.0, atol=1e-4)
    graph.depthwise(x, Pooling(3), "c")
    np.testing.assert_allclose(parameters(graph)["c.weight"].sum(axis=(1, 2, 3)), 0.75, atol=1e-4)


def test_layers_on_columns() -> None:
    """`gemm` has weights as in PyTorch, `linear` the other way round, on batch and sequence."""
    graph, x = with_input(3, 64)
    wide = graph.linear(x, 256, name="up")
    found, given = parameters(graph), normal(1, 3, 64)
    assert found["up.weight"].shape == (64, 256)
    assert found["up.weight"].std() == pytest.approx(np.sqrt(1 / 64), rel=0.03)
    assert found["up.bias"].std() == pytest.approx(0.02, rel=0.15)
    wanted = given @ found["up.weight"] + found["up.bias"]
    np.testing.assert_allclose(computed(graph, wide, given), wanted, rtol=1e-4, atol=1e-4)
    graph, x = with_input(64, batch=2)
    head = graph.gemm(x, 256, gain=4.0)
    found, given = parameters(graph), normal(2, 64)
    assert found["fc.weight"].shape == (256, 64)
    assert found["fc.weight"].std() == pytest.approx(np.sqrt(4 / 64), rel=0.03)
    assert found["fc.bias"].std() == pytest.approx(0.05, rel=0.15)
    wanted = given @ found["fc.weight"].T + found["fc.bias"]
    np.testing.assert_allclose(computed(graph, head, given), wanted, rtol=1e-4, atol=1e-4)


def test_normalizations() -> None:
    graph, x = with_input(3, 512)
    result = graph.layer_norm(x, 1e-5, "ln")
    found, given = parameters(graph), normal(1, 3, 512) * 3 + 1
    assert found["ln.weight"].mean() == pytest.approx(1.0, abs=0.01)
    for name in ("ln.weight", "ln.bias"):
        assert found[name].std() == pytest.approx(0.05, rel=0.15)
    centred = given - given.mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    wanted = wanted * found["ln.weight"] + found["ln.bias"]
    np.testing.assert_allclose(computed(graph, result, given), wanted, rtol=1e-3, atol=1e-3)
    graph, x = with_input(512, 2, 2)
    graph.norm(x, name="bn")
    found = parameters(graph)
    for name, spread in (("bn.weight", 0.1), ("bn.running_var", 0.2)):
        assert found[name].min() == pytest.approx(1 - spread, abs=0.01)
        assert found[name].max() == pytest.approx(1 + spread, abs=0.01)
    for name, mean in (("bn.bias", 1.0), ("bn.running_mean", 0.0)):
        assert found[name].mean() == pytest.approx(mean, abs=0.01)
        assert found[name].std() == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize(
    ("extent", "stride", "pads", "after"), [(7, 2, (1, 1), 4), (8, 2, (0, 1), 4), (8, 1, (1, 1), 8)]
)
def test_same_padding_has_an_output_for_each_stride(
    extent: int, stride: int, pads: tuple[int, int], after: int
) -> None:
    """TensorFlow's: of an odd number the larger half is at the end."""
    graph, x = with_input(1, extent, extent)
    result = graph.conv(x, Convolution(1, 3, stride, "same"))
    found = {
        a.name: onnx.helper.get_attribute_value(a) for a in graph.model.graph.node[0].attribute
    }
    assert found["pads"] == [pads[0], pads[0], pads[1], pads[1]]
    assert graph.shape(result) == (1, 1, after, after)


def test_windows() -> None:
    graph, x = with_input(2, 6, 5)
    assert graph.shape(graph.max_pool(x, Pooling(2, 2))) == (1, 2, 3, 2)
    assert graph.shape(graph.max_pool(x, Pooling(2, 2, ceil=True))) == (1, 2, 3, 3)
    assert graph.shape(graph.average_pool(x, Pooling((1, 3), 1, (0, 1)))) == (1, 2, 6, 5)
    assert graph.shape(graph.depthwise(x, Pooling(3, 2, 1), "d")) == (1, 2, 3, 3)
    assert parameters(graph)["d.weight"].shape == (2, 1, 3, 3)
    graph, x = with_input(1, 2, 2)
    corner = Pooling(2, 1, 1, count_padding=False)
    means = computed(graph, graph.average_pool(x, corner), np.full((1, 1, 2, 2), 8.0, np.float32))
    assert np.unique(means).tolist() == [8.0], "the border does not count"
    graph, x = with_input(1, 2, 2)
    means = computed(
        graph, graph.average_pool(x, Pooling(2, 1, 1)), np.full((1, 1, 2, 2), 8.0, np.float32)
    )
    assert means[0, 0].tolist() == [[2, 4, 2], [4, 8, 4], [2, 4, 2]]


def test_a_sum_with_its_relu_and_a_convolution_with_its_norm_are_named_both() -> None:
    graph, x = with_input(4, 3, 3)
    y = graph.conv_norm(x, Convolution(4, 1), "conv1+bn1+relu")
    bare = graph.conv_norm(y, Convolution(4, 1), "conv2+bn2")
    result = graph.add_relu(x, bare, "add+out")
    kinds = [(node.op_type, node.name) for node in graph.model.graph.node]
    assert kinds == [
        *(("Conv", "conv1"), ("BatchNormalization", "bn1"), ("Relu", "relu")),
        *(("Conv", "conv2"), ("BatchNormalization", "bn2"), ("Add", "add"), ("Relu", "out")),
    ]
    assert (computed(graph, result, normal(1, 4, 3, 3)) >= 0).all()


def test_names_are_places_and_unique() -> None:
    graph, x = with_input(4)
    with graph.scope("layer1"), graph.scope(None), graph.scope("0"):
        first = graph.node("Relu", x, name="relu")
        second = graph.node("Relu", first, name="relu")
        third = graph.node("Relu", second, name="relu")
    outside = graph.node("Relu", third)
    assert [first, second, third] == ["layer1.0.relu", "layer1.0.relu_1", "layer1.0.relu_2"]
    assert outside == "relu"
    with pytest.raises(ValueError, match=r"layer1\.0\.relu is not the output of the last node"):
        graph.output(first, "y")
    assert graph.output(outside, "y") == "y"


def test_equal_parts() -> None:
    graph, x = with_input(6, 2)
    parts = graph.split(x, 3, 1)
    assert [graph.shape(part) for part in parts] == [(1, 2, 2)] * 3
    with pytest.raises(ValueError, match="axis of 6 does not split"):
        graph.split(x, 4, 1)
    with pytest.raises(ValueError, match="batch must be at least 1, not 0"):
        GraphBuilder("test", batch=0)
    assert GraphBuilder("test").batch == 1


def test_constants_of_transformers() -> None:
    graph = GraphBuilder("test")
    made = [
        graph.positions(3, "p"),
        graph.lower_triangle(3, "mask"),
        graph.full((2,), 7, "f4", "f"),
    ]
    positions, mask, full = (
        onnx.numpy_helper.to_array(node.attribute[0].t) for node in graph.model.graph.node
    )
    assert made == ["p", "mask", "f"]
    assert positions.tolist() == [[0, 1, 2]] and positions.dtype == np.int64
    assert mask.tolist() == [[[[True, False, False], [True, True, False], [True] * 3]]]
    assert full.tolist() == [7, 7] and full.dtype == np.float32


def test_weights_follow_from_the_seed_and_their_name_alone() -> None:
    def drawn(name: str, **named: int) -> Any:
        graph, x = with_input(8, **named)
        graph.gemm(x, 4, name=name)
        return parameters(graph)[f"{name}.weight"]

    np.testing.assert_array_equal(drawn("fc", seed=1), drawn("fc", seed=1, batch=3))
    assert (drawn("fc", seed=1) != drawn("fc", seed=2)).all()
    assert (drawn("fc", seed=1) != drawn("head", seed=1)).all()


def test_boxes_of_ssd() -> None:
    """On a map of 32 × 32 places 16 pixels apart four boxes each, and so on to one place: a size,
    the mean with the next one, and the size at an aspect ratio of two and of a half. The maps in
    the middle have a ratio of three and of a third, too."""
    boxes = ssd_anchors()
    assert boxes.shape == (4 * (32**2 + 2**2 + 1) + 6 * (16**2 + 8**2 + 4**2), 4)
    root = np.sqrt(2)
    mean = np.sqrt(51.2 * 102.4)
    wanted = [[8, 8, 51.2, 51.2], [8, 8, mean, mean]]
    wanted += [[8, 8, 51.2 * root, 51.2 / root], [8, 8, 51.2 / root, 51.2 * root]]
    np.testing.assert_allclose(boxes[:4], wanted, rtol=1e-6)
    assert boxes[4, :2].tolist() == [24, 8], "the next place to the right"
    assert boxes[4 * 32, :2].tolist() == [8, 24], "the first of the next row"
    assert boxes[-4].tolist() == pytest.approx([256, 256, 450.6, 450.6])
