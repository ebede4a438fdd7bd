"""Recurrent layers against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import check, check_node, few, model_of, normal, unfolded
from tilewright.core.errors import ModelError
from tilewright.graph.network import Graph

STEPS, BATCH, DEPTH, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "Softsign": 0, "Softplus": 0, "LeakyRelu": 1,
             "Elu": 1, "ThresholdedRelu": 1, "Affine": 2, "ScaledTanh": 2,
             "HardSigmoid": 2}  # fmt: skip
"""Activations, and how many of `alpha` and `beta` they have."""
BOUNDED = ["Sigmoid", "Tanh", "HardSigmoid"]
NEEDY = {"Affine", "ScaledTanh", "ThresholdedRelu"}
INPUTS = ("x", "w", "r", "b", "lengths", "state", "memory", "peepholes")


def arrays_of(kind: str, directions: int, given: set[str]) -> dict[str, Any]:
    """The inputs of a layer, those of `INPUTS` that are `given`."""
    columns = GATES[kind] * HIDDEN
    every: dict[str, Any] = {
        "x": normal(STEPS, BATCH, DEPTH),
        "w": normal(directions, columns, DEPTH, seed=1),
        "r": normal(directions, columns, HIDDEN, seed=2) * np.float32(0.5),
        "b": normal(directions, 2 * columns, seed=3),
        "lengths": np.array([STEPS, 2, 1], np.int32),
        "state": normal(directions, BATCH, HIDDEN, seed=4),
        "memory": normal(directions, BATCH, HIDDEN, seed=5),
        "peepholes": normal(directions, 3 * HIDDEN, seed=6),
    }
    return {name: every[name] for name in INPUTS if name in given}


@st.composite
def layers(draw: st.DrawFn) -> tuple[str, int, set[str], tuple[str, ...], dict[str, Any]]:
    """A kind, directions, inputs, outputs, attributes."""
    kind = draw(st.sampled_from([*GATES]))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 1 + (direction == "bidirectional")
    lstm = kind == "LSTM"
    optional = ["b", "lengths", "state", *["memory", "peepholes"] * lstm]
    given_inputs = {"x", "w", "r"} | {name for name in optional if draw(st.booleans())}
    asked = [draw(st.booleans()) for _ in range(2 + lstm)]
    asked[0] |= not any(asked)
    named: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    if draw(st.booleans()):
        count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind] * directions
        names = [draw(st.sampled_from([*FUNCTIONS])) for _ in range(count)]
        if {"Affine", "ScaledTanh"} & {*names} or draw(st.booleans()):
            for place, name in enumerate(("activation_alpha", "activation_beta")):
                takes = sum(FUNCTIONS[each] > place for each in names)
                named[name] = [0.2 + 0.1 * number for number in range(takes)] or None
    if draw(st.booleans()):
        named["clip"] = 0.7
    if kind == "GRU":
        named["linear_before_reset"] = draw(st.integers(0, 1))
    if lstm and draw(st.integers(0, 3)) == 0:
        named["input_forget"] = 1
    named = {name: value for name, value in named.items() if value is not None}
    outputs = tuple(name if wanted else "" for name, wanted in zip("yhc", asked, strict=False))
    return kind, directions, given_inputs, outputs, named


def written(
    kind: str, arrays: dict[str, Any], outputs: tuple[str, ...], **named: Any
) -> tuple[Any, dict[str, Any]]:
    """The model, with weights as constants, and its inputs."""
    last = max(INPUTS.index(name) for name in arrays)
    names = [name if name in arrays else "" for name in INPUTS[: last + 1]]
    constants = {name: arrays[name] for name in arrays if name in ("w", "r", "b", "peepholes")}
    inputs = {name: array for name, array in arrays.items() if name not in constants}
    node = helper.make_node(kind, names, outputs, name="node", **named)
    found = tuple(filter(None, outputs))
    return model_of([node], inputs, outputs=found, constants=constants), inputs


@few
@given(layers())
def test_layers(drawn: tuple[str, int, set[str], tuple[str, ...], dict[str, Any]]) -> None:
    kind, directions, given_inputs, outputs, named = drawn
    model, inputs = written(kind, arrays_of(kind, directions, given_inputs), outputs, **named)
    graph = check(model, inputs)
    operators = [node.operator for node in graph.nodes]
    assert operators.count("recurrent") == operators.count("dense") == directions


def layer(kind: str, outputs: tuple[str, ...] = ("y",), **named: Any) -> Graph:
    arrays = arrays_of(kind, 1, {"x", "w", "r", "b"})
    model, inputs = written(kind, arrays, outputs, hidden_size=HIDDEN, **named)
    return check(model, inputs)


def test_a_layer_is_a_dense_layer_and_one_task_whose_states_are_the_result() -> None:
    assert [node.operator for node in layer("LSTM").nodes] == [
        *("dense", "add", "recurrent"),
        "reshape",
    ]


def test_zeros_and_whole_lengths_are_as_if_left_out() -> None:
    arrays = arrays_of("LSTM", 1, {*INPUTS} - {"peepholes"})
    names = [*arrays]
    node = helper.make_node("LSTM", names, ["y"], name="node", hidden_size=HIDDEN)
    zeros = {name: np.zeros_like(arrays[name]) for name in ("state", "memory")}
    constants = arrays | zeros | {"lengths": np.full(BATCH, STEPS, np.int32)}
    x = {"x": constants.pop("x")}
    graph = check(model_of([node], x, constants=constants), x)
    (found,) = (node for node in graph.nodes if node.operator == "recurrent")
    assert found.attribute("operands") == "" and found.attribute("finals") == 0


def test_weights_that_are_computed() -> None:
    arrays = arrays_of("GRU", 2, {"x", "w", "r", "b"})
    named = dict(hidden_size=HIDDEN, direction="bidirectional", linear_before_reset=1)
    check_node("GRU", arrays, **named)


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (dict(activations=["Swish"]), "Swish"),
        (dict(activations=["Affine"]), "activation_alpha"),
        (dict(direction="sideways"), "forward, reverse, bidirectional"),
    ],
)
def test_what_is_refused(named: dict[str, Any], why: str) -> None:
    arrays = arrays_of("RNN", 1, {"x", "w", "r"})
    model, _ = written("RNN", arrays, ("y",), hidden_size=HIDDEN, **named)
    with pytest.raises(ModelError, match=why):
        unfolded(model)
