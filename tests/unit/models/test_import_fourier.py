"""Fourier transforms against numpy, and against ONNX Runtime where it is precise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import check_node, few, int64, model_of, normal, unfolded
from tilewright.core.errors import ModelError
from tilewright.graph.evaluate import run_graph

LENGTHS = (1, 2, 3, 8, 12, 64, 65, 67, 96, 130, 256)
"""Short ones, products of factors, and one beyond the short ones that has none."""


def apart(x: Any) -> Any:
    """Complex numbers as ONNX has them."""
    return np.stack([x.real, x.imag], -1)


def together(x: Any) -> Any:
    """Numbers of a tensor [...,1 or 2], complex ones where it has two parts."""
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def transform(x: Any, length: int, axis: int, *, inverse: bool, half: bool) -> Any:
    """What ONNX asks of DFT, by numpy in double precision."""
    numbers = together(x.astype(np.float64))
    if inverse and half:
        return np.fft.irfft(numbers, length, axis)[..., None]
    result = (np.fft.ifft if inverse else np.fft.fft)(numbers, length, axis)
    return apart(np.take(result, range(length // 2 + 1), axis) if half else result)


def assert_near(x: Any, wanted: Any) -> None:
    assert x.shape == wanted.shape
    np.testing.assert_allclose(x, wanted, rtol=0, atol=1e-6 * max(1, np.abs(wanted).max()))


@few
@given(st.data())
def test_transforms(data: st.DataObject) -> None:
    draw = data.draw
    inverse, half = draw(st.booleans()), draw(st.booleans())
    parts = draw(st.integers(1, 2)) if not half else 1 + inverse
    size, rest = draw(st.sampled_from(LENGTHS)), draw(st.lists(st.integers(1, 3), max_size=2))
    axis = draw(st.integers(0, len(rest)))
    usual = 2 * (size - 1) if inverse and half else size
    length = draw(st.sampled_from(LENGTHS)) if usual < 1 or draw(st.booleans()) else usual
    x = normal(*rest[:axis], size, *rest[axis:], parts)
    names, constants = ["x", "n"], {"n": np.array(length)}
    if length == usual and draw(st.booleans()):
        names, constants = ["x", ""], {}
    named: dict[str, Any] = {"inverse": int(inverse), "onesided": int(half)}
    place = draw(st.sampled_from([axis, axis - x.ndim]))
    opset = draw(st.sampled_from([17, 20]))
    if opset == 17:
        named["axis"] = place
    elif axis != x.ndim - 2 or draw(st.booleans()):
        names, constants = [*names, "axis"], constants | {"axis": np.array(place)}
    node = helper.make_node("DFT", names, ["y"], name="node", **named)
    graph = unfolded(model_of([node], {"x": x}, opset=opset, constants=constants))
    wanted = transform(x, length, axis, inverse=inverse, half=half)
    assert_near(run_graph(graph, {"x": x})["y"], wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [8, 128])
def test_transforms_as_onnx_runtime(length: int, dtype: str) -> None:
    for parts, half, inverse in ((1, 1, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)):
        x = normal(2, length, 3, parts).astype(dtype)
        check_node("DFT", {"x": x}, axis=1, onesided=half, inverse=inverse)
    half_spectrum = normal(2, length // 2 + 1, 2)
    half_spectrum[:, [0, -1], 1] = 0  # which ONNX Runtime counts, though nothing real has it
    check_node("DFT", {"x": half_spectrum}, axis=1, onesided=1, inverse=1)


@few
@given(st.data())
def test_short_time_transforms(data: st.DataObject) -> None:
    draw = data.draw
    length, step, parts = draw(st.sampled_from([1, 8, 12, 96])), draw(st.integers(1, 40)), 1
    half, windowed = draw(st.booleans()), draw(st.booleans())
    if not half:
        parts = draw(st.integers(1, 2))
    x = normal(draw(st.integers(1, 2)), length + draw(st.integers(0, 150)), parts)
    window = normal(length, seed=1) if windowed else np.ones(length, np.float32)
    constants = {"step": np.array(step)} | ({"w": window} if windowed else {})
    names = ["x", "step", "w" if windowed else ""]
    if not windowed or draw(st.booleans()):
        names, constants = [*names, "length"], constants | {"length": np.array(length)}
    node = helper.make_node("STFT", names, ["y"], name="node", onesided=int(half))
    graph = unfolded(model_of([node], {"x": x}, constants=constants))
    count = (x.shape[1] - length) // step + 1
    frames = np.stack([x[:, step * i : step * i + length] for i in range(count)], 1)
    wanted = transform(frames * window[:, None], length, 2, inverse=False, half=half)
    assert_near(run_graph(graph, {"x": x})["y"], wanted)


def test_frames_as_onnx_runtime() -> None:
    x, constants = normal(2, 90, 1), {"step": np.array(4), "w": normal(16)}
    check_node("STFT", {"x": x}, constants=constants, onesided=1)
    names = ["x", "step", "", "length"]
    constants = {"step": np.array(16), "length": np.array(16)}
    check_node("STFT", {"x": normal(2, 90, 2)}, constants=constants, order=names, onesided=0)


def test_a_long_transform_is_two_products() -> None:
    graph = check_node("DFT", {"x": normal(1, 1024, 1)}, onesided=1, opset=20)
    matrices = [
        graph.types[node.inputs[1]].shape for node in graph.nodes if node.operator == "dense"
    ]
    assert matrices == [(32, 64), (64, 34)]


def test_frames_share_the_indices_of_their_blocks() -> None:
    constants = {"step": np.array(160), "w": normal(400)}
    node = helper.make_node("STFT", ["x", "step", "w"], ["y"], name="node")
    model = model_of([node], {"x": (1, 16000, 1)}, constants=constants)
    model.graph.output[0].ClearField("type")  # onnx has forgotten the default
    graph = unfolded(model)
    (gather,) = (node for node in graph.nodes if node.operator == "gather")
    assert graph.types[gather.inputs[1]].shape == (98, 5)


@pytest.mark.parametrize("length", [1999, 1 << 22])
def test_what_needs_large_matrices_is_carried_along(length: int) -> None:
    node = helper.make_node("DFT", ["x"], ["y"], name="node")
    graph = unfolded(model_of([node], {"x": (1, length, 2)}))
    assert [node.operator for node in graph.nodes] == ["opaque"]


def test_an_axis_that_is_an_input_is_carried_along() -> None:
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], name="node")
    inputs = {"x": normal(1, 8, 1), "axis": np.array(1)}
    assert [n.operator for n in unfolded(model_of([node], inputs, opset=20)).nodes] == ["opaque"]


def test_the_step_must_be_positive() -> None:
    node = helper.make_node("STFT", ["x", "step", "w"], ["y"], name="node", onesided=1)
    for step, length in ((0, 8), (4, 20)):
        constants = {"step": np.array(step), "w": normal(length)}
        model = model_of([node], {"x": (1, 12, 1)}, constants=constants)
        with pytest.raises(ModelError, match=f"frames of {length} in steps of {step} from 12"):
            unfolded(model)


def test_the_length_must_be_positive() -> None:
    node = helper.make_node("DFT", ["x", "n"], ["y"], name="node")
    model = model_of([node], {"x": (1, 8, 1)}, constants={"n": int64(0).reshape(())})
    with pytest.raises(ModelError, match="transform of 0 elements"):
        unfolded(model)
