"""Kernels that nobody measured are versions to choose from, by what is predicted of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tilewright.core.predictions import Source
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import spaces
from tilewright.models import ModelOptions
from tilewright.plan.planning_data import PlanningRequest, placements_of, planning_data
from tilewright.plan.predicted_versions import MOST_ASKED, predicted_versions, shortlist
from tilewright.plan.preparation import prepare
from tilewright.predict.collected import Estimate
from tilewright.predict.kernel_features import Kernel

SMALL = "zoo:mlp"


def lasts(seconds: float, source: Source = "model") -> Estimate:
    return Estimate(latency_s=seconds, low_s=0.5 * seconds, high_s=2 * seconds, source=source)


@pytest.fixture(scope="module")
def task() -> Workload:
    plan = prepare(SMALL, ModelOptions(), placements_of(("llvm",), None, 2)["llvm"]).plan
    return next(one.workload for one in plan.tasks.values())


def named(name: str, rows: int = 1) -> Candidate:
    return Candidate(implementation=name, settings=(("rows", rows),), forms=())


def chosen(
    task: Workload,
    usual: Estimate,
    said: dict[Candidate, Estimate],
    moved: dict[str, int],
) -> dict[Candidate, Estimate]:
    """What comes of it where `said` begins with the usual kernel."""
    first, *others = said

    def modelled(kernels: Sequence[Kernel]) -> list[Estimate]:
        return [said[candidate] for _, candidate in kernels]

    (found,) = predicted_versions(
        [((task, first), usual)], [others], modelled, lambda one: moved[one[1].implementation]
    )
    return {candidate: estimate for (_, candidate), estimate in found}


MOVED = {"direct": 10, "w": 20, "thin": 5}
SAID = {
    named("direct"): lasts(4.0),
    named("direct", 2): lasts(3.0),
    named("w"): lasts(3.2),
    named("thin"): lasts(8.0),
    named("thin", 2): lasts(6.0),
}


def test_the_fastest_and_what_moves_less_on_the_scale_of_the_usual_one(task: Workload) -> None:
    found = chosen(task, lasts(8.0, "interpolated"), SAID, MOVED)
    assert {one: estimate.latency_s for one, estimate in found.items()} == {
        named("direct", 2): 6.0,
        named("thin", 2): 12.0,
    }
    assert {estimate.source for estimate in found.values()} == {"model"}


def test_nothing_is_faster_than_what_was_measured_and_chosen(task: Workload) -> None:
    assert list(chosen(task, lasts(8.0, "exact"), SAID, MOVED)) == [named("thin", 2)]


def test_rooflines_tell_no_settings_apart(task: Workload) -> None:
    said = {one: lasts(each.latency_s, "roofline") for one, each in SAID.items()}
    assert list(chosen(task, lasts(8.0, "roofline"), said, MOVED)) == [named("thin", 2)]


@pytest.mark.parametrize(("said_s", "source"), [(1.0, "roofline"), (3.88, "model")])
@pytest.mark.parametrize("measured", ["interpolated", "exact"])
def test_what_moves_less_is_not_believed_to_be_faster_for_that(
    task: Workload, said_s: float, source: Source, measured: Source
) -> None:
    """Of a roofline, or by less than a model can tell."""
    said = {named("direct"): lasts(4.0), named("thin"): lasts(said_s, source)}
    (thin,) = chosen(task, lasts(8.0, measured), said, MOVED).values()
    assert thin.latency_s == 8.0 <= thin.high_s


@given(
    times=st.lists(st.floats(1e-6, 1e-2), min_size=2, max_size=9),
    usual_s=st.floats(1e-6, 1e-2),
)
def test_a_faster_one_is_the_fastest_by_the_model(
    task: Workload, times: list[float], usual_s: float
) -> None:
    said = {named("direct", rows): lasts(seconds) for rows, seconds in enumerate(times)}
    found = chosen(task, lasts(usual_s), said, MOVED)
    best = min(times[1:]) / times[0]
    assert bool(found) == (best * usual_s <= 0.95 * usual_s)
    for estimate in found.values():
        assert estimate.latency_s == pytest.approx(best * usual_s)
        assert estimate.low_s < estimate.latency_s < estimate.high_s


def test_the_shortlist_is_the_best_of_all_settings_by_their_estimates() -> None:
    there = placements_of(("llvm",), None, 2)["llvm"]
    plan = prepare(SMALL, ModelOptions(), there).plan
    tasks = list(plan.tasks.values())
    found = shortlist(tasks[0].workload, tasks[0].forms, there, None)
    for space in spaces(tasks[0].workload, tasks[0].forms, there):
        own = [one for one in found if one.implementation == space.spec.name]
        if not space.when_measured:
            assert len(own) == min(MOST_ASKED, len(space.numbers))
            least = space.part.candidate(int(space.numbers[int(np.argmin(space.estimates_s))]))
            assert least in own


def test_plans_with_the_best_settings_know_them() -> None:
    request = PlanningRequest(ModelOptions(), "best", 1e-2, fewer_cores=True)
    with tilewright.open(db="memory:") as session:
        places = placements_of(("llvm",), None, 2)
        found = planning_data(SMALL, places, request, session.records, lambda _: None)
    several = [call for call in found.calls if len(call.modes) > 2]
    assert several, "on one core and on two there is more than one kernel for some call"
    for call in several:
        for cores in (1, 2):
            there = [mode for mode in call.modes if mode.cores == cores]
            assert len({(m.implementation, *m.settings.items()) for m in there}) == len(there) <= 3
