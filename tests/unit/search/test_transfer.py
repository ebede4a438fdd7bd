"""Transfer: which similar tasks count, and what a tuner is given of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from helpers.fakes.levels import convolution, relu, task
from helpers.fakes.measuring import PLACEMENT, measured
from tilewright.core.records import Measurement
from tilewright.graph.network import TensorType
from tilewright.graph.tasks import Task
from tilewright.kernels.search_space import SearchSpace
from tilewright.kernels.spaces import search_space
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.default import DefaultTuner
from tilewright.search.tuning import prior_trials

NEW = task(convolution("add", "relu"))
NEAR = task(convolution("add", "relu", extent=12))
FAR = task(convolution("add", "relu", extent=24))


def space_of(one: Task) -> SearchSpace:
    return search_space(one.workload, one.forms, PLACEMENT)


SPACE = space_of(NEW)


def history(one: Task, count: int, seconds=lambda c: 1e-4) -> list[Measurement]:
    space = space_of(one)
    assert space.listed is not None
    step = max(1, len(space.listed) // count)
    candidates = [space.candidate(int(n)) for n in space.listed[::-step][:count]]
    return [measured(one.workload, c, seconds(c)) for c in candidates]


def given(known: dict[Task, list[Measurement]], *others: Task):
    outcomes = {one.key: found for one, found in known.items()}
    return prior_trials(NEW, SPACE, outcomes, [NEW, *others], PLACEMENT)


def test_the_most_similar_amount_of_work_first() -> None:
    known = {NEAR: history(NEAR, 10), FAR: history(FAR, 18)}
    counts = [sum(SPACE.encode(m.candidate) is not None for m in found) for found in known.values()]
    assert counts[0] != counts[1]
    for others in ((NEAR, FAR), (FAR, NEAR)):
        assert [len(p.relative) for p in given(known, *others)] == counts


def test_columns_are_those_of_the_space_they_are_for() -> None:
    (found,) = given({NEAR: history(NEAR, 20, lambda c: 1e-4 * (1 + len(str(c)) % 5))}, NEAR)
    assert SPACE.listed is not None
    assert found.features.shape == (20, SPACE.features(SPACE.listed[:1]).shape[1])
    assert np.isfinite(found.features).all()
    assert found.relative.min() == 1.0
    assert found.estimated is not None and found.estimated.shape == (20,)
    assert found.estimated.min() == 1.0


def test_a_long_history_is_thinned_and_keeps_its_fastest() -> None:
    """What a tuner has to read stays small however much was measured."""
    (found,) = given({NEAR: history(NEAR, 200, lambda c: 1e-4 * (1 + len(str(c)) % 50))}, NEAR)
    assert 8 <= len(found.relative) <= 50
    assert found.relative[0] == 1.0 and found.relative.max() > 1.0


def test_a_candidate_of_the_space_keeps_its_features() -> None:
    assert SPACE.listed is not None
    for number in SPACE.listed[:: max(1, len(SPACE.listed) // 50)]:
        row = SPACE.encode(SPACE.candidate(int(number)))
        np.testing.assert_allclose(row, SPACE.features([int(number)])[0])


def test_a_task_is_no_prior_of_its_own_nor_are_other_anchors_or_short_histories() -> None:
    stranger = task(relu())
    known = {
        NEW: history(NEW, 20),
        NEAR: history(NEAR, 7),
        stranger: [measured(stranger.workload, c.candidate, 1e-5) for c in history(NEAR, 20)],
    }
    assert given(known, NEAR, stranger) == ()
    assert given({}, NEAR, FAR) == ()


def test_prior_trials_move_the_first_guesses() -> None:
    """What was slow on a similar task is not among the first; what was fast is preferred."""

    plain = DefaultTuner(TuningTask(space=SPACE)).ask(8)
    first = plain[0].setting("order")

    def bad(candidate) -> float:
        return 5e-4 if dict(candidate.settings).get("order") == first else 1e-4

    told = given({NEAR: history(NEAR, 200, bad)}, NEAR)
    moved = DefaultTuner(TuningTask(space=SPACE, prior_trials=told)).ask(8)

    def share(candidates) -> float:
        return sum(dict(c.settings).get("order") == first for c in candidates) / len(candidates)

    assert moved != plain
    assert share(moved) < share(plain)


def test_another_element_type_says_nothing() -> None:
    """Of NEAR, as far as its settings go; only the type of its elements is another one."""
    arguments = tuple(
        replace(argument, type=TensorType(argument.type.shape, "float64"))
        for argument in NEAR.workload.arguments
    )
    doubles = replace(NEAR.workload, arguments=arguments)
    other = replace(NEAR, key=(doubles.key, NEAR.forms), workload=doubles)
    known = {NEAR.key: history(NEAR, 10), other.key: history(NEAR, 10)}
    assert len(prior_trials(NEW, SPACE, known, [NEW, NEAR, other], PLACEMENT)) == 1
    assert prior_trials(NEW, SPACE, known, [NEW, other], PLACEMENT) == ()
