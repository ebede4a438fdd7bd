"""Gates, activations and norms as exporters write them: their tasks, and ONNX Runtime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from helpers.networks.graph_builder import run_fused
from helpers.networks.onnx_models import folded, model_of, normal, session_of
from tilewright.graph.clean import clean
from tilewright.graph.tasks import fused_network

ROWS, DEPTH, WIDTH = 5, 12, 64
CONSTANTS: dict[str, Any] = {
    "w": normal(DEPTH, WIDTH, seed=1) / 4,
    "w1": normal(DEPTH, WIDTH, seed=5) / 4,
    "w2": normal(DEPTH, 2 * WIDTH, seed=2) / 4,
    "b2": normal(2 * WIDTH, seed=3),
    "last": np.array([-1]),
    "scale": normal(DEPTH, seed=4),
    "two": np.float32(2),
    "three": np.float32(3),
    "half": np.float32(0.5),
    "one": np.float32(1),
    "root": np.float32(np.sqrt(2)),
    "cubic": np.float32(0.044715),
    "slope": np.float32(np.sqrt(2 / np.pi)),
    "epsilon": np.float32(1e-6),
}
TANH = [
    ("Pow", "h three", "h3"), ("Mul", "h3 cubic", "c"), ("Add", "h c", "i"),
    ("Mul", "i slope", "u"), ("Tanh", "u", "t"), ("Add", "t one", "s"),
    ("Mul", "h half", "g"), ("Mul", "g s", "y"),
]  # fmt: skip
ERF = [
    ("Div", "h root", "d"), ("Erf", "d", "e"), ("Add", "e one", "s"),
    ("Mul", "h s", "g"), ("Mul", "g half", "y"),
]  # fmt: skip
HALVES = [("MatMul", "x w2", "m"), ("Add", "b2 m", "z"), ("Split", "z", "h k")]
SQUARE = [("Pow", "x two", "p"), ("ReduceMean", "p last", "v"), ("Add", "v epsilon", "q")]
ROOT = [*SQUARE, ("Sqrt", "q", "r")]
WRITTEN: dict[str, tuple[list[tuple[str, str, str]], list[str]]] = {
    "gelu": ([("MatMul", "x w", "h"), *ERF], ["dense gelu"]),
    "gelu, tanh form": (
        [("MatMul", "x w", "h"), *TANH],
        ["dense multiply multiply multiply multiply add multiply tanh add multiply"],
    ),
    "silu": (
        [("MatMul", "x w", "h"), ("Sigmoid", "h", "s"), ("Mul", "h s", "y")],
        ["dense silu"],
    ),
    "gated linear unit": (
        [*HALVES, ("Sigmoid", "k", "s"), ("Mul", "h s", "y")],
        ["dense add", "dense add sigmoid multiply"],
    ),
    "gated silu": (
        [*HALVES, ("Sigmoid", "h", "s"), ("Mul", "h s", "a"), ("Mul", "a k", "y")],
        ["dense add silu", "dense add multiply"],
    ),
    "gated gelu": (
        [*HALVES, *ERF[:-1], ("Mul", "g half", "a"), ("Mul", "k a", "y")],
        ["dense add gelu", "dense add multiply"],
    ),
    "two layers": (
        [("MatMul", "x w", "h"), ("MatMul", "x w1", "k"), ("Mul", "h k", "y")],
        ["dense", "dense multiply"],
    ),
    "root mean square": (
        [*ROOT, ("Reciprocal", "r", "i"), ("Mul", "x i", "n"), ("Mul", "scale n", "y")],
        ["rms_norm"],
    ),
    "root mean square, divided": ([*ROOT, ("Div", "x r", "y")], ["rms_norm"]),
    "norm": (
        [("Mul", "x x", "p"), ("ReduceSum", "p last", "v"), ("Sqrt", "v", "y")],
        ["multiply reduce_sum sqrt"],
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_exporters_forms(name: str) -> None:
    written, wanted = WRITTEN[name]
    nodes = [
        helper.make_node(
            kind,
            inputs.split(),
            outputs.split(),
            **({"axis": -1, "num_outputs": 2} if kind == "Split" else {}),
        )
        for kind, inputs, outputs in written
    ]
    read = {tensor for _, inputs, _ in written for tensor in inputs.split()}
    constants = {name: np.asarray(value) for name, value in CONSTANTS.items() if name in read}
    inputs = {"x": normal(2, ROWS, DEPTH)}
    model = model_of(nodes, inputs, opset=18, constants=constants)
    expected = session_of(model).run(None, inputs)[0]
    network = fused_network(clean(folded(model)))
    np.testing.assert_allclose(run_fused(network, inputs)["y"], expected, rtol=1e-4, atol=1e-5)
    found = [" ".join(step.operator for step in c.workload.steps) for c in network.calls]
    assert sorted(found) == sorted(wanted)
