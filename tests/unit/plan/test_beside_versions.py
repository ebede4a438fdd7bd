"""Kernels tuned while something ran are versions to plan with, by what they lost there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import tilewright
from helpers.fakes.measuring import failed, measured
from tilewright.core.planning import PlanningMode
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import spaces
from tilewright.models import ModelOptions
from tilewright.plan.beside_versions import Quieter, modes_of, tuned_beside
from tilewright.plan.kernel_versions import worth_choosing
from tilewright.plan.planning_data import PlanningRequest, placements_of, planning_data
from tilewright.plan.preparation import prepare
from tilewright.store.base import Store

MODEL = "op:conv2d[c=32,h=28,out=32,k=3,pad=1]"
THERE = placements_of(("llvm",), None, 2)["llvm"]
TASK = next(iter(prepare(MODEL, ModelOptions(), THERE).plan.tasks.values()))
WORKLOAD: Workload = TASK.workload
SPACE = max(
    spaces(WORKLOAD, TASK.forms, THERE), key=lambda one: (not one.when_measured, len(one.numbers))
)
USUAL, OTHER, THIRD = (SPACE.part.candidate(int(number)) for number in SPACE.numbers[:3])
STREAM, COMPUTE = "1111x1", "2222x1"


@pytest.fixture
def store() -> Iterator[Store]:
    with tilewright.open(db="memory:") as session:
        yield session.store


def beside(partner: str) -> Placement:
    key = f"{THERE.device.class_key}+beside={partner}"
    return replace(THERE, device=replace(THERE.device, class_key=key))


def keep(store: Store, place: Placement, times_us: dict[Candidate, float]) -> None:
    where = {"device_class": place.device.class_key, "resources": place.resources}
    store.add_device(place.device)
    store.add_workloads([WORKLOAD])
    store.add([measured(WORKLOAD, c, us * 1e-6, **where) for c, us in times_us.items()])


def found(store: Store) -> Quieter | None:
    return tuned_beside([(WORKLOAD, USUAL)], store, THERE).get((WORKLOAD, USUAL))


def test_the_fastest_beside_has_the_part_that_it_lost(store: Store) -> None:
    keep(store, THERE, {USUAL: 46, OTHER: 50, THIRD: 60})
    assert found(store) is None, "nothing ran beside"
    keep(store, beside(STREAM), {USUAL: 76, OTHER: 62, THIRD: 70})
    quieter = found(store)
    assert quieter is not None and quieter.kernel == (WORKLOAD, OTHER)
    assert quieter.lost == pytest.approx(12 / 30)


def test_the_partner_that_slows_down_most_tells(store: Store) -> None:
    keep(store, THERE, {USUAL: 46, OTHER: 50, THIRD: 60})
    keep(store, beside(STREAM), {USUAL: 76, OTHER: 62})
    keep(store, beside(COMPUTE), {USUAL: 96, THIRD: 60})
    assert found(store) == Quieter(kernel=(WORKLOAD, THIRD), lost=0.0)


@pytest.mark.parametrize(
    ("alone", "there"),
    [
        ({USUAL: 46, OTHER: 50}, {USUAL: 47, OTHER: 40}),  # the usual one loses nothing
        ({USUAL: 46, OTHER: 50}, {USUAL: 76, OTHER: 75}),  # hardly faster
        ({USUAL: 46, OTHER: 50}, {USUAL: 76, OTHER: 90}),  # slower
        ({USUAL: 46}, {USUAL: 76, OTHER: 50}),  # never timed alone
        ({OTHER: 46}, {USUAL: 76, OTHER: 50}),
        ({USUAL: 46, OTHER: 50}, {OTHER: 50}),  # the usual one never timed beside it
    ],
)
def test_what_cannot_be_told_is_no_version(
    store: Store, alone: dict[Candidate, float], there: dict[Candidate, float]
) -> None:
    keep(store, THERE, alone)
    keep(store, beside(STREAM), there)
    assert found(store) is None


def test_what_is_wrong_is_no_version(store: Store) -> None:
    keep(store, THERE, {USUAL: 46, OTHER: 50})
    keep(store, beside(STREAM), {USUAL: 76, OTHER: 62})
    where = {"device_class": THERE.device.class_key, "resources": THERE.resources}
    store.add([failed(WORKLOAD, OTHER, "wrong result", created_at=9e9, **where)])
    assert found(store) is None


@pytest.mark.parametrize("more", ["+clock=1.5GHz", "+cache=cold"])
def test_other_circumstances_say_nothing(store: Store, more: str) -> None:
    keep(store, THERE, {USUAL: 46, OTHER: 50})
    keep(store, beside(STREAM + more), {USUAL: 76, OTHER: 62})
    assert found(store) is None


def way(us: float, moved: int) -> PlanningMode:
    return PlanningMode(device="llvm", implementation="direct", latency_s=us, moved_bytes=moved)


def test_its_bytes_are_what_it_lost_of_the_usual_ones() -> None:
    one, other, third = ((WORKLOAD, each) for each in (USUAL, OTHER, THIRD))
    modes = {one: way(46, 1000), other: way(50, 1000), third: way(60, 100)}
    every = [one, other, third]
    assert modes_of(every, modes, None) == list(modes.values())
    usual, quiet, least = modes_of(every, modes, Quieter(kernel=other, lost=0.4))
    assert (usual, least) == (modes[one], modes[third])
    assert (quiet.latency_s, quiet.moved_bytes, quiet.moved_is) == (50, 400, "measured")


def test_it_stays_beside_the_three_versions_of_a_call() -> None:
    usual, near, least = way(46, 1000), way(48, 800), way(60, 100)
    tuned = replace(way(50, 400), moved_is="measured")
    assert worth_choosing([usual, near, least]) == [usual, near, least]
    assert worth_choosing([usual, near, tuned, least]) == [usual, near, tuned, least]
    beaten = replace(way(50, 900), moved_is="measured")
    assert worth_choosing([usual, near, beaten]) == [usual, near]


@pytest.mark.parametrize("settings", ["best", "default"])
def test_plans_with_the_best_settings_know_it(store: Store, settings: str) -> None:
    keep(store, THERE, {USUAL: 1.0, OTHER: 1.1})
    keep(store, beside(STREAM), {USUAL: 2.0, OTHER: 1.2})
    request = PlanningRequest(ModelOptions(), settings, 1e-2, fewer_cores=True)  # type: ignore[arg-type]
    data = planning_data(MODEL, {"llvm": THERE}, request, store, lambda _: None)
    measured_bytes = {
        (mode.cores, tuple(mode.settings.items())): mode
        for call in data.calls
        for mode in call.modes
        if mode.moved_is == "measured"
    }
    if settings == "default":
        assert measured_bytes == {}
        return
    ((cores, own),) = measured_bytes
    assert cores == 2 and own == OTHER.settings
    (mode,) = measured_bytes.values()
    usual = next(
        one
        for call in data.calls
        for one in call.modes
        if one.cores == 2 and tuple(one.settings.items()) == USUAL.settings
    )
    assert mode.moved_bytes == round(0.1 * usual.moved_bytes) and mode.source == "exact"
    assert mode.latency_s > usual.latency_s
