"""Small networks of matrix products: a multilayer perceptron and an unrolled LSTM."""

from __future__ import annotations

import math

import numpy as np

from tilewright.models.zoo._builder import GraphBuilder, Value
from tilewright.models.zoo._entry import ZooEntry

_VOCABULARY = 10_000
_HIDDEN = 650
_STEPS = 35
_LAYERS = 2


def mlp(g: GraphBuilder) -> None:
    """A multilayer perceptron 784-512-256-10 with ReLU, sized for 28x28 digits."""
    x = g.input("input", (784,))
    x = g.relu(g.gemm(x, 512, "fc1", gain=2.0))
    x = g.relu(g.gemm(x, 256, "fc2", gain=2.0))
    g.output(g.gemm(x, 10, "fc3"), "logits")


class _Cell:
    """One LSTM layer: its parameters, which all time steps share, and its running state."""

    def __init__(self, g: GraphBuilder, name: str) -> None:
        gates, std = 4 * _HIDDEN, 1 / math.sqrt(_HIDDEN)
        self._g = g
        self._input = g.normal(f"{name}.weight_ih", (gates, _HIDDEN), std)
        self._input_bias = g.normal(f"{name}.bias_ih", (gates,), 0.05)
        self._state = g.normal(f"{name}.weight_hh", (gates, _HIDDEN), std)
        self._state_bias = g.normal(f"{name}.bias_hh", (gates,), 0.05)
        zeros = np.zeros((g.batch, _HIDDEN), dtype=np.float32)
        with g.scope(name):
            self._hidden = g.constant(zeros, "hidden")
            self._memory = g.constant(zeros, "memory")

    def step(self, x: Value) -> Value:
        """The next hidden state. Gates lie in PyTorch's order: input, forget, cell, output."""
        g, shape = self._g, (self._g.batch, 4 * _HIDDEN)
        from_input = g.node("Gemm", [x, self._input, self._input_bias], shape, "gemm_ih", transB=1)
        inputs = [self._hidden, self._state, self._state_bias]
        from_state = g.node("Gemm", inputs, shape, "gemm_hh", transB=1)
        admit, forget, cell, emit = g.split(g.add(from_input, from_state, "gates"), 4, axis=1)
        kept = g.multiply(g.unary("Sigmoid", forget, "forget_gate"), self._memory, "kept")
        candidate = g.unary("Tanh", cell, "candidate")
        added = g.multiply(g.unary("Sigmoid", admit, "input_gate"), candidate, "added")
        self._memory = g.add(kept, added, "memory")
        gate = g.unary("Sigmoid", emit, "output_gate")
        self._hidden = g.multiply(gate, g.unary("Tanh", self._memory, "squashed"), "hidden")
        return self._hidden


def lstm(g: GraphBuilder) -> None:
    """A word language model: embedding, two LSTM layers of 650, unrolled for 35 steps, decoder.

    The medium model of Zaremba et al. with a vocabulary of 10,000 words. Each time step is written
    out as Gemm, Sigmoid and Tanh nodes, starting from zero states. With two biases per layer, as
    in the authors' code and in PyTorch.
    """
    tokens = g.input("tokens", (_STEPS,), integer=True)
    table = g.normal("encoder.weight", (_VOCABULARY, _HIDDEN), 1.0)
    embedded = g.gather(table, tokens, name="encoder")
    cells = [_Cell(g, f"layer{layer}") for layer in range(_LAYERS)]
    hidden: list[Value] = []
    for step in range(_STEPS):
        with g.scope(f"step{step}"):
            index = g.constant(np.array(step, dtype=np.int64), "index")
            x = g.gather(embedded, index, axis=1, name="select")
            for layer, cell in enumerate(cells):
                with g.scope(f"layer{layer}"):
                    x = cell.step(x)
            axes = g.integers([1], "axes")
            hidden.append(g.node("Unsqueeze", [x, axes], (g.batch, 1, _HIDDEN)))
    x = g.reshape(g.concat(hidden), (g.batch * _STEPS, _HIDDEN), "flatten")
    x = g.gemm(x, _VOCABULARY, "decoder")
    g.output(g.reshape(x, (g.batch, _STEPS, _VOCABULARY), "unflatten"), "logits")


ENTRIES = (
    ZooEntry(
        name="mlp",
        construct=mlp,
        parameters=535_818,
        multiply_adds=535_040,
        input_shapes=((1, 784),),
        output_shapes=((1, 10),),
        source="a plain perceptron of the size common for MNIST; figures counted by hand",
    ),
    ZooEntry(
        name="lstm",
        construct=lstm,
        parameters=19_780_400,
        multiply_adds=None,
        input_shapes=((1, _STEPS),),
        output_shapes=((1, _STEPS, _VOCABULARY),),
        source=(
            "Zaremba et al., Recurrent Neural Network Regularization, 2014, medium model; "
            "parameters counted by hand (the paper rounds to 20 million)"
        ),
        integer_limit=_VOCABULARY,
    ),
)
