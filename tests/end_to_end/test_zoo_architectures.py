"""Every network of the zoo, with weights, through the checker and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from tilewright.models import zoo
from tilewright.models.zoo._builder import ssd_anchors

pytestmark = pytest.mark.slow


def feeds(name: str, session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Random inputs of the shapes and types that the session asks for."""
    rng, limit = np.random.default_rng(1), zoo.entry(name).integer_limit
    return {
        port.name: rng.standard_normal(port.shape, dtype=np.float32)
        if limit is None
        else rng.integers(0, limit, port.shape)
        for port in session.get_inputs()
    }


def load(name: str, batch: int = 1) -> onnxruntime.InferenceSession:
    """A checked network in a CPU session."""
    serialized = zoo.build(name, batch=batch).SerializeToString()
    onnx.checker.check_model(serialized)
    return onnxruntime.InferenceSession(serialized, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.on_request if n == "vgg19_bn" else ()) for n in zoo.names()],
)
def test_network_computes_something_sensible(name: str) -> None:
    session = load(name)
    outputs = session.run(None, feeds(name, session))
    assert tuple(output.shape for output in outputs) == zoo.entry(name).output_shapes
    for output in outputs:
        assert output.dtype == np.float32
        assert np.isfinite(output).all()
        assert np.abs(output).max() < 1e4
        assert output.std() > 1e-3


@pytest.mark.on_request
@pytest.mark.parametrize("name", ["nasnet_mobile", "vit_b16"])
def test_second_item_of_a_batch_stands_alone(name: str) -> None:
    pair = load(name, batch=2)
    inputs = feeds(name, pair)
    both = pair.run(None, inputs)
    single = load(name).run(None, {key: array[1:] for key, array in inputs.items()})
    for batched, alone in zip(both, single, strict=True):
        np.testing.assert_allclose(batched[1:], alone, rtol=1e-3, atol=1e-3)


@pytest.mark.on_request
@pytest.mark.parametrize("name", ["nasnet_mobile", "bert_base"])
def test_items_of_a_batch_change_places(name: str) -> None:
    """Neither looks at the other, nor at where in the batch it stands."""
    pair = load(name, batch=2)
    inputs = feeds(name, pair)
    both = pair.run(None, inputs)
    swapped = pair.run(None, {key: array[::-1].copy() for key, array in inputs.items()})
    for before, after in zip(both, swapped, strict=True):
        np.testing.assert_allclose(before[::-1], after, rtol=1e-3, atol=1e-3)
        assert np.abs(before[0] - before[1]).max() > 1e-2


def test_gpt2_does_not_look_ahead() -> None:
    session = load("gpt2_small")
    inputs = feeds("gpt2_small", session)
    before = session.run(None, inputs)[0]
    changed = inputs["input_ids"].copy()
    changed[0, 40] = (changed[0, 40] + 1) % 50_257
    after = session.run(None, {"input_ids": changed})[0]
    np.testing.assert_allclose(before[0, :40], after[0, :40], rtol=1e-4, atol=1e-4)
    assert np.abs(before[0, 41:] - after[0, 41:]).max() > 1e-3


def test_ssd_decodes_its_offsets() -> None:
    session = load("ssd_resnet50_512")
    scores, offsets, probabilities, boxes = session.run(None, feeds("ssd_resnet50_512", session))
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = exponents / exponents.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-6)
    places = ssd_anchors()
    centers = offsets[0, :, :2] * 0.1 * places[:, 2:] + places[:, :2]
    halves = np.exp(offsets[0, :, 2:] * 0.2) * places[:, 2:] / 2
    corners = np.concatenate([centers - halves, centers + halves], axis=1)
    np.testing.assert_allclose(boxes[0], corners, rtol=1e-4, atol=1e-2)
