"""Recurrent layers: a dense layer for all steps, then `recurrent` for the loop over them.

LSTM(x, W, R, B)     →     dense(x, W) ─ add(B) ─ recurrent(R), for each direction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import ModelError, quoted
from tilewright.graph.operators.recurrent import (
    GATES,
    PARAMETERS,
    Activation,
    activations_text,
    state_names,
)
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    shortest,
    translates,
)

_CELLS = {
    ("LSTM", False): "lstm",
    ("LSTM", True): "lstm_coupled",
    ("GRU", False): "gru",
    ("GRU", True): "gru_reset_after",
    ("RNN", False): "rnn",
}
_ACTIVATIONS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_FUNCTIONS = {
    "relu": ("relu", ()), "tanh": ("tanh", ()), "sigmoid": ("sigmoid", ()),
    "softplus": ("softplus", ()), "softsign": ("softsign", ()),
    "affine": ("affine", (None, None)), "scaledtanh": ("scaled_tanh", (None, None)),
    "hardsigmoid": ("hard_sigmoid", (0.2, 0.5)), "leakyrelu": ("leaky_relu", (0.01,)),
    "thresholdedrelu": ("thresholded_relu", (None,)), "elu": ("elu", (1.0,)),
}  # fmt: skip
"""Of ONNX's names, in small letters: ours, and its defaults for `alpha` and `beta`; None where it
has none and engines disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """What its directions share; `lengths` where sequences end before the last step."""

    node: OnnxNode
    cell: str
    x: Tensor
    lengths: Tensor | None
    finals: int

    @property
    def batch_first(self) -> bool:
        """Whether sequences are the first axis of inputs and outputs."""
        return self.node.integer("layout", 0) == 1

    def operand(self, index: int, direction: int, axis: int = 0) -> Tensor:
        """A direction's part of an input."""
        tensor = self.node.input(index)
        shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
        return tensor.cut({axis: slice(direction, direction + 1)}).reshape(shape)

    def matrix(self, index: int, direction: int) -> Tensor:
        """A direction's weights, transposed."""
        known = self.node.value(index)
        if known is None:
            return self.operand(index, direction).transpose((1, 0))
        return self.node.constant(np.ascontiguousarray(known[direction].T))


@translates("LSTM", "GRU", "RNN")
def recurrent_layer(node: OnnxNode) -> Translated:
    """LSTM, GRU and RNN in both layouts and all directions → dense, add, recurrent."""
    directions = _DIRECTIONS.get(node.text("direction", "forward"))
    if directions is None:
        raise ModelError(f"its direction is none of {', '.join(_DIRECTIONS)}")
    variant = node.integer("input_forget", 0) or node.integer("linear_before_reset", 0)
    cell, x = _CELLS[node.operator, bool(variant)], node.input(0)
    if x.rank != 3 or node.input(2).shape[::2] != (
        len(directions),
        node.input(2).shape[1] // GATES[cell],
    ):
        raise ModelError(f"its input {x.type} or weights {node.input(2).type} have wrong shapes")
    batch_first = node.integer("layout", 0) == 1
    x = x.transpose((1, 0, 2)) if batch_first else x
    lengths, steps = node.given(4), x.shape[0]
    if lengths is not None and lengths.value is not None and (lengths.value == steps).all():
        lengths = None
    keeps = lengths is not None or node.uses_output(2)
    finals = len(state_names(cell)) if keeps else 0
    layer = _Layer(node=node, cell=cell, x=x, lengths=lengths, finals=finals)
    functions = _functions(node, _ACTIVATIONS[node.operator] * len(directions))
    count = len(functions) // len(directions)
    parts: list[list[Tensor]] = []
    for number, reverse in enumerate(directions):
        mine = activations_text(functions[number * count :][:count])
        rows = _rows(layer, number, activations=mine, reverse=reverse)
        last = steps if finals else (steps - 1) * (not reverse)
        cuts = ((0, steps), *((last + more, last + more + 1) for more in range(max(1, finals))))
        parts.append([rows.cut({0: slice(*cut)}) for cut in cuts])
    return [
        _joined(layer, part, every=not output) if node.uses_output(output) else None
        for output, part in enumerate(zip(*parts, strict=True))
    ]


def _joined(layer: _Layer, parts: Sequence[Tensor], *, every: bool) -> Tensor:
    """The directions [steps, batch, hidden] in a result [steps, directions, batch, hidden], or
    without steps; in the layout that puts the sequences first these come before the directions."""
    steps, batch, hidden = parts[0].shape
    if every:
        parts = [part.reshape((steps, 1, batch, hidden)) for part in parts]
    whole = parts[0]
    if len(parts) > 1:
        whole = layer.node.builder.emit("concat", *parts, axis=int(every))
    if layer.batch_first:
        whole = whole.transpose((2, 0, 1, 3) if every else (1, 0, 2))
    return whole


def _rows(layer: _Layer, direction: int, *, activations: str, reverse: bool) -> Tensor:
    """The states of a direction."""
    node, cell = layer.node, layer.cell
    inputs, weights = layer.matrix(1, direction), layer.matrix(2, direction)
    known = inputs.value is not None
    gates = (
        layer.x.emit("dense", inputs)
        if known
        else layer.x.emit("batch_matmul", inputs, transpose_b=False)
    )
    others: dict[str, Tensor] = {}
    for index, name in ((5, "state"), (6, "memory")):
        given = node.given(index)
        if given is not None and not (given.value is not None and not given.value.any()):
            others[name] = layer.operand(index, direction, int(layer.batch_first))
    if node.given(7) is not None:
        others["peepholes"] = layer.operand(7, direction)
    if node.given(3) is not None:
        columns, hidden = weights.shape[::-1]
        bias = layer.operand(3, direction)
        own, recurrent = (bias.cut({0: slice(i, i + columns)}) for i in (0, columns))
        if cell == "gru_reset_after":
            others["bias"] = recurrent.cut({0: slice(2 * hidden, columns)})
            recurrent = recurrent.cut({0: slice(0, 2 * hidden)}).padded(
                (0,), (hidden,), 0.0, "constant"
            )
        gates = gates + (own + recurrent)
    if layer.lengths is not None:
        others["lengths"] = layer.lengths
    return gates.emit(
        "recurrent",
        weights,
        *others.values(),
        cell=cell,
        activations=activations,
        operands=" ".join(others),
        clip=node.number("clip", 0.0),
        reverse=reverse,
        finals=layer.finals,
    )


def _functions(node: OnnxNode, default: Sequence[str]) -> list[Activation]:
    """The activations of all directions; `activation_alpha` and `activation_beta` have a number for
    each of those that have such a parameter, one after the other."""
    given = [
        entry.decode(errors="replace") if isinstance(entry, bytes) else str(entry)
        for entry in node.attributes.get("activations", default)
    ]
    if len(given) < len(default):
        raise ModelError(f"it has {len(given)} activations, but needs {len(default)}")
    numbers = [iter(node.attributes.get(f"activation_{name}", ())) for name in PARAMETERS]
    found: list[Activation] = []
    for name in given[: len(default)]:
        if name.lower() not in _FUNCTIONS:
            known = ", ".join(sorted(_FUNCTIONS))
            raise ModelError(f"it has the activation {quoted(name)}", hint=f"Known are {known}.")
        ours, usual = _FUNCTIONS[name.lower()]
        values = [next(those, value) for those, value in zip(numbers, usual, strict=False)]
        known = [shortest(value) for value in values if value is not None]
        if len(known) < len(values):
            raise ModelError(f"{name} needs values in activation_alpha and activation_beta")
        found.append(Activation(ours, tuple(known)))
    return found
