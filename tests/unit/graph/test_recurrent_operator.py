"""What a recurrent layer refuses to be, and what its activations are written as."""

from __future__ import annotations

import pytest

from tilewright.core.errors import ModelError
from tilewright.graph.network import TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.operators.recurrent import Activation, activations_of, activations_text

RECURRENT = OPERATORS["recurrent"]
GATES, WEIGHTS = TensorType((5, 2, 12)), TensorType((4, 12))


@pytest.mark.parametrize(
    ("kinds", "named", "why"),
    [
        ((GATES, WEIGHTS), dict(cell="qrnn"), "lstm"),
        ((GATES, TensorType((3, 9))), {}, "do not fit weights"),
        ((GATES, WEIGHTS, TensorType((2, 4))), {}, "3 inputs"),
        ((GATES, WEIGHTS, TensorType((4, 2))), dict(operands="state"), r"state .* \[2, 4\]"),
        ((GATES, TensorType((4, 12), "float64")), {}, "different types"),
    ],
)
def test_inputs_that_do_not_fit(kinds, named, why) -> None:
    with pytest.raises(ModelError, match=why):
        RECURRENT.infer(kinds, dict(cell="gru", operands="", finals=0) | named)


def test_states_and_what_lies_behind_them() -> None:
    lengths = TensorType((2,), "int32")
    named = dict(cell="gru", operands="lengths", finals=1)
    result = RECURRENT.infer((GATES, WEIGHTS, lengths), named)
    assert result == TensorType((6, 2, 4))
    assert RECURRENT.flop((GATES, WEIGHTS), result, named) == 5 * 2 * 12 * (2 * 4 + 6)


def test_activations_survive_being_written() -> None:
    functions = (Activation("sigmoid"), Activation("hard_sigmoid", (0.2, 0.5)))
    assert activations_text(functions) == "sigmoid hard_sigmoid:0.2:0.5"
    assert activations_of(activations_text(functions)) == functions
