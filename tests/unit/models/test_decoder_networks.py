"""Prefill and step of a decoder against the decoder itself, in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.decoders import DEPTH, VOCABULARY, GrowingLoop, decoder_model
from tilewright.core.errors import ModelError
from tilewright.models.decoder import prefill, recognized, step


def session(model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


@pytest.mark.parametrize(("kind", "count"), [("llama", 3), ("llama", 8), ("gpt2", 5)])
def test_prefill_and_steps_make_the_same_logits(kind: str, count: int) -> None:
    model = decoder_model(kind)
    loop, roles = GrowingLoop(model), recognized(model)
    tokens, slots = 8, 12
    ids = np.arange(7, 7 + count)
    feed = {
        name: np.pad(values, (0, tokens - count))[None]
        for name, values in (
            (roles.tokens, ids),
            (roles.mask, np.ones(count, np.int64)),
            (*roles.positions, np.arange(count)),
        )
    }
    first = session(prefill(model, roles, tokens))
    logits, *presents = first.run(None, {**feed, roles.last: np.array([count - 1])})
    assert logits.shape == (1, 1, VOCABULARY)
    np.testing.assert_allclose(logits[0, 0], loop(ids.tolist()), atol=1e-5)
    caches = {}
    for cache, present in zip(roles.caches, presents, strict=True):
        caches[cache.past] = np.full((1, present.shape[1], slots, DEPTH), 9, "float32")
        caches[cache.past][:, :, :count] = present[:, :, :count]
    next_one = session(step(model, roles, slots))
    for length in range(count, slots):
        mask = (np.arange(slots) <= length).astype(np.int64)[None]
        place = np.array([[length]])
        feed = {roles.tokens: place + 1, roles.mask: mask, roles.positions[0]: place, **caches}
        logits, *presents = next_one.run(None, {**feed, roles.slot: place[0]})
        np.testing.assert_allclose(logits[0, 0], loop([length + 1]), atol=1e-5)
        for cache, present in zip(roles.caches, presents, strict=True):
            others = np.arange(slots) != length
            assert (present[:, :, others] == caches[cache.past][:, :, others]).all()
            caches[cache.past] = present


def test_caches_are_found_by_what_happens_to_them() -> None:
    model = decoder_model(layers=1)
    renamed = {"past_key_values.0.key": "a", "present.0.value": "b"}
    for each in (*model.graph.input, *model.graph.output):
        each.name = renamed.get(each.name, each.name)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    model.graph.node.insert(0, helper.make_node("Concat", ["a"], ["same"], axis=0))
    for node in model.graph.node[1:]:
        node.input[:] = ["same" if name == "a" else name for name in node.input]
    found = [(cache.past, cache.present, cache.axis) for cache in recognized(model).caches]
    assert found == [("a", "present.0.key", 2), ("past_key_values.0.value", "b", 2)]


def without(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    for node in model.graph.node:
        node.input[:] = ["c0" if each == name else each for each in node.input]
    kept = [value for value in model.graph.input if value.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def changed(model: onnx.ModelProto, name: str, to: str) -> onnx.ModelProto:
    (value,) = (each for each in model.graph.input if each.name == name)
    value.name = to
    for node in model.graph.node:
        node.input[:] = [to if each == name else each for each in node.input]
    return model


def test_what_is_no_decoder_is_refused_by_what_it_lacks() -> None:
    model = decoder_model(layers=1)
    del model.graph.output[1:]
    with pytest.raises(ModelError, match="no decoder with a cache"):
        recognized(model)
    with pytest.raises(ModelError, match="no input attention_mask"):
        recognized(without(decoder_model(layers=1), "attention_mask"))
    with pytest.raises(ModelError, match="'who' has no role"):
        recognized(changed(decoder_model(layers=1), "position_ids", "who"))
    with pytest.raises(ModelError, match="exactly one of the inputs input_ids"):
        recognized(without(decoder_model(layers=1), "input_ids"))


@pytest.mark.parametrize(
    ("name", "axis", "size"),
    [("input_ids", 1, 7), ("past_key_values.0.key", 2, 7), ("attention_mask", 0, 3)],
)
def test_lengths_that_are_fixed_are_refused(name: str, axis: int, size: int) -> None:
    model = decoder_model(layers=1)
    (value,) = (each for each in model.graph.input if each.name == name)
    value.type.tensor_type.shape.dim[axis].dim_value = size
    with pytest.raises(ModelError, match=name):
        step(model, recognized(model), 16)
