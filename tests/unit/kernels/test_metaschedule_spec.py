"""The spec of traced kernels: complete candidates, outside all ordinary spaces."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.streaming_cases import ADD, OPAQUE
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Role, Step, Workload
from tilewright.kernels.metaschedule import SPEC, TRACE
from tilewright.kernels.registry import applicable, implementation
from tilewright.kernels.spaces import search_space
from tilewright.testing.implementations import made_up_placement

GEOMETRY = attributes(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)


def conv(role: Role = "constant") -> Workload:
    arguments = (
        Argument(type=TensorType((1, 8, 6, 6))),
        Argument(type=TensorType((16, 8, 3, 3)), role=role),
    )
    return Workload(
        arguments=arguments,
        steps=(
            Step(operator="conv2d", inputs=(0, 1), attributes=GEOMETRY),
            Step(operator="relu", inputs=(2,)),
        ),
    )


def candidate(*forms: Form) -> Candidate:
    return Candidate(implementation=SPEC.name, settings=((TRACE, "[[],[]]"),), forms=forms)


def test_it_takes_no_part_in_ordinary_spaces() -> None:
    assert implementation("metaschedule") is SPEC
    for workload in (ADD, conv()):
        assert SPEC not in applicable(
            workload, made_up_placement().target, made_up_placement().resources
        )
        forms = (PLAIN,) * (len(workload.arguments) + 1)
        names = {part.name for part in search_space(workload, forms, made_up_placement()).parts}
        assert names and SPEC.name not in names


def test_weights_are_packed_for_blocked_results() -> None:
    task, mine = conv(), candidate(PLAIN, PLAIN, blocked(8))
    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    packed = SPEC.pack(task, mine, {1: weights})[1]
    assert packed.shape == SPEC.packed_shapes(task, mine)[1] == (2, 8, 3, 3, 8)
    assert packed[1, 5, 2, 0, 3] == weights[11, 5, 2, 0]
    assert packed.flags.c_contiguous


@pytest.mark.parametrize(
    ("task", "forms"),
    [
        (conv(), (PLAIN, PLAIN, PLAIN)),
        (conv("data"), (PLAIN, PLAIN, blocked(8))),
        (conv(), (PLAIN, PLAIN, blocked(32))),
        (ADD, (PLAIN,) * (len(ADD.arguments) + 1)),
    ],
)
def test_otherwise_nothing_is_packed(task: Workload, forms: tuple[Form, ...]) -> None:
    assert SPEC.packed_shapes(task, candidate(*forms)) == {}
    constants = {1: np.ones(3)}
    assert SPEC.pack(task, candidate(*forms), constants) == constants


def test_imported_operators_stay_plain_and_are_checked_loosely() -> None:
    plain = (PLAIN,) * (len(OPAQUE.arguments) + 1)
    assert SPEC.valid(OPAQUE, made_up_placement().target, made_up_placement().resources, plain, {})
    assert not SPEC.valid(
        OPAQUE,
        made_up_placement().target,
        made_up_placement().resources,
        (*plain[:-1], blocked(8)),
        {},
    )
    assert SPEC.error_bound(OPAQUE) > 10 * SPEC.error_bound(conv())
