"""Recurrent layers: what one state after the other is computed by.

    gates[step] = x[step] W + bias            all steps at once, by `dense` before
    state = cell(gates[step] + state R)       step after step, by `recurrent`

Gates lie in ONNX's order: input, output, forget, cell of `lstm`, update, reset, hidden of `gru`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import Operator, Types, common_dtype, expect
from tilewright.graph.operators.elementwise import ELEMENTWISE

GATES = {"lstm": 4, "lstm_coupled": 4, "gru": 3, "gru_reset_after": 3, "rnn": 1}
"""How many gates each cell has. `lstm_coupled` forgets as much as its input gate does not let in;
`gru_reset_after` resets products with the state (`linear_before_reset`), `gru` the state itself."""
OPERANDS = {
    "state": "[batch, hidden], before the first step; zeros where it is left out",
    "memory": "[batch, hidden], the cell's before the first step; zeros where it is left out",
    "peepholes": "[3 hidden], of an LSTM: how the memory enters input, output and forget gate",
    "bias": "[hidden], of `gru_reset_after`: added to the product that is reset",
    "lengths": "[batch] int32, the steps of each sequence; behind them the results are zero",
}
"""What `recurrent` may take behind gates and weights."""
PARAMETERS = ("alpha", "beta")
_FUNCTIONS: dict[str, Callable[..., Any]] = {each.name: each.compute for each in ELEMENTWISE}
_WORK_OF_A_GATE = 6


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of a gate: one of our elementwise operators, or `affine`, `scaled_tanh` or
    `softsign`, as ONNX defines them."""

    name: str
    parameters: tuple[float, ...] = ()

    @property
    def named(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(zip(PARAMETERS, self.parameters, strict=False))

    def __call__(self, x: Any) -> Any:
        match self.name, self.parameters:
            case "affine", (alpha, beta):
                return alpha * x + beta
            case "scaled_tanh", (alpha, beta):
                return alpha * np.tanh(beta * x)
            case "softsign", ():
                return x / (1 + np.abs(x))
            case _:
                return _FUNCTIONS[self.name](x, **self.named)


def activations_text(activations: Sequence[Activation]) -> str:
    """The attribute `activations`: `sigmoid tanh hard_sigmoid:0.2:0.5`."""
    return " ".join(":".join([a.name, *map(repr, a.parameters)]) for a in activations)


def activations_of(text: str) -> tuple[Activation, ...]:
    """What `activations_text` wrote."""
    parts = [each.split(":") for each in text.split()]
    return tuple(Activation(name, tuple(map(float, rest))) for name, *rest in parts)


def _recurrent_type(
    types: Types, cell: str, operands: str, finals: int, **_named: object
) -> TensorType:
    gates, weights, others = types[0].shape, types[1].shape, operands.split()
    expect(cell in GATES, f"there is no cell {cell}, but {', '.join(GATES)}")
    expect(len(types) == 2 + len(others), f"{len(types)} inputs for gates, weights, {operands}")
    numbers = [kind for kind, name in zip(types[2:], others, strict=True) if name != "lengths"]
    dtype = common_dtype((*types[:2], *numbers))
    expect(len(gates) == 3 and len(weights) == 2, f"gates {types[0]} and weights {types[1]}")
    (steps, batch, _), (hidden, columns) = gates, weights
    fits = gates[2] == columns == GATES[cell] * hidden
    expect(fits, f"gates {types[0]} do not fit weights {types[1]} of a cell {cell}")
    whole = (batch, hidden)
    shapes = {"state": whole, "memory": whole, "peepholes": (3 * hidden,), "bias": (hidden,)}
    for name, kind in zip(others, types[2:], strict=True):
        wanted = shapes.get(name, (batch,))
        expect(kind.shape == wanted, f"{name} is {kind}, but has to be {list(wanted)}")
    return TensorType((steps + finals, batch, hidden), dtype)


def _recurrent_work(types: Types, _result: TensorType, **_named: object) -> int:
    gates, hidden = types[0], types[1].shape[0]
    return gates.elements * (2 * hidden + _WORK_OF_A_GATE)


def _lstm(
    x: Any, weights: Any, states: list[Any], functions: Sequence[Callable[..., Any]], given: Any
) -> list[Any]:
    gate, inner, outer = functions
    state, memory = states
    into, out, forget, fresh = np.split(x + state @ weights, 4, axis=1)
    of_into, of_out, of_forget = np.split(given.get("peepholes", np.zeros(3, x.dtype)), 3)
    into = gate(into + of_into * memory)
    kept = 1 - into if given["coupled"] else gate(forget + of_forget * memory)
    memory = kept * memory + into * inner(fresh)
    return [gate(out + of_out * memory) * outer(memory), memory]


def _gru(
    x: Any, weights: Any, states: list[Any], functions: Sequence[Callable[..., Any]], given: Any
) -> list[Any]:
    gate, inner = functions
    (state,), cut = states, 2 * weights.shape[0]
    update, reset = np.split(gate(x[:, :cut] + state @ weights[:, :cut]), 2, axis=1)
    if given["coupled"]:
        product = reset * (state @ weights[:, cut:] + given.get("bias", 0))
    else:
        product = (reset * state) @ weights[:, cut:]
    return [(1 - update) * inner(x[:, cut:] + product) + update * state]


def _rnn(
    x: Any, weights: Any, states: list[Any], functions: Sequence[Callable[..., Any]], _given: Any
) -> list[Any]:
    return [functions[0](x + states[0] @ weights)]


_CELLS = {"lstm": _lstm, "lstm_coupled": _lstm, "gru": _gru, "gru_reset_after": _gru, "rnn": _rnn}


def _recurrent(
    gates: Any,
    weights: Any,
    *others: Any,
    cell: str,
    activations: str,
    operands: str,
    **named: Any,
) -> Any:
    steps, batch, _ = gates.shape
    given: dict[str, Any] = dict(zip(operands.split(), others, strict=True))
    given["coupled"] = "_" in cell
    nothing: Any = np.zeros((batch, weights.shape[0]), gates.dtype)
    states: list[Any] = [given.get(name, nothing) for name in state_names(cell)]
    functions = [partial(_clipped, each, named["clip"]) for each in activations_of(activations)]
    if "lstm" in cell:
        functions[-1] = partial(_clipped, functions[-1].args[0], 0.0)
    rows = np.zeros((steps + named["finals"], *nothing.shape), gates.dtype)
    lengths = given.get("lengths", np.full(batch, steps)).reshape(batch, 1)
    for step in range(steps)[:: -1 if named["reverse"] else 1]:
        later = _CELLS[cell](gates[step], weights, states, functions, given)
        going_on = step < lengths
        rows[step] = np.where(going_on, later[0], 0)
        states = [np.where(going_on, *pair) for pair in zip(later, states, strict=True)]
    for place, state in enumerate(states[: named["finals"]]):
        rows[steps + place] = state
    return rows


def state_names(cell: str) -> tuple[str, ...]:
    """What a cell hands from step to step, by the names of the operands that begin it."""
    return ("state", "memory") if cell.startswith("lstm") else ("state",)


def _clipped(function: Activation, limit: float, x: Any) -> Any:
    return np.asarray(function(np.clip(x, -limit, limit) if limit else x), x.dtype)


RECURRENT = (
    Operator(
        name="recurrent",
        result_type=_recurrent_type,
        work=_recurrent_work,
        compute=_recurrent,
        arity=None,
        sums=True,
        anchor=True,
    ),
)
"""`recurrent` gives the states of all steps [steps, batch, hidden], and behind them as many of the
last state and an LSTM's last memory as `finals` says."""
