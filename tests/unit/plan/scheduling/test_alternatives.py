"""Alternatives: the schedules that planners considered, of which none is best in nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.core.schedules import MEASURES, Alternative
from tilewright.plan.scheduling.alternatives import alternatives
from tilewright.plan.scheduling.answering import answer
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.pareto import undominated
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planning import SCHEDULERS, schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem

FAST = ScheduleDevice(name="fast", kind="cuda", idle_w=0.0, price_per_hour=3.0)
FRUGAL = ScheduleDevice(name="frugal", idle_w=0.0, price_per_hour=0.1)


def two_devices(
    frugal: ScheduleDevice = FRUGAL, us: float = 40, energy_j: float | None = 0.1
) -> SchedulingProblem:
    """A call that is fast on one device and takes so long and so much energy on the other."""
    modes = (mode("fast", us=10, energy_j=0.5), mode("frugal", us=us, energy_j=energy_j))
    return plain_problem({"a": modes}, devices=(FAST, frugal))


@pytest.mark.parametrize("planner", SCHEDULERS.names())
def test_what_is_slower_and_cheaper_is_told(planner: str) -> None:
    """Whoever plans, the other device is on the front."""
    result = answer(two_devices(), planner, 1.0).result
    chosen, other = result.front
    assert chosen.chosen and not other.chosen and result.considered == 2
    assert (chosen.devices, other.devices) == (("fast",), ("frugal",))
    assert (chosen.latency_s, other.latency_s) == pytest.approx((10 * MICRO, 40 * MICRO))
    assert (chosen.energy_j, other.energy_j) == pytest.approx((0.5, 0.1))
    assert (chosen.price or 0.0) > (other.price or 0.0) and chosen.cores == other.cores == 1


def test_power_is_told_of_devices_whose_power_is_known() -> None:
    """Of both a call's energy, over its time, but where the device's own power is not known."""
    fast, frugal_mode = mode("fast", us=10, energy_j=0.5), mode("frugal", us=40, energy_j=0.1)
    calls = {"a": (fast,), "b": (frugal_mode,)}
    for frugal, told in ((FRUGAL, 0.1 / (40 * MICRO)), (replace(FRUGAL, idle_w=None), None)):
        used = answer(plain_problem(calls, devices=(FAST, frugal)), "heft", 1.0).result.devices
        assert [each.peak_power_w for each in used] == [
            pytest.approx(0.5 / (10 * MICRO)),
            told if told is None else pytest.approx(told),
        ]
    unmetered = {"a": (mode("fast", us=10, energy_j=None),)}
    (used,) = answer(plain_problem(unmetered, devices=(FAST,)), "heft", 1.0).result.devices
    assert used.peak_power_w is None


def test_what_is_worse_in_everything_is_not() -> None:
    problem = two_devices(replace(FRUGAL, price_per_hour=4.0), us=11, energy_j=0.6)
    result = answer(problem, "heft", 1.0).result
    assert [each.devices for each in result.front] == [("fast",)] and result.considered == 2


def test_what_nobody_knows_of_all_does_not_count() -> None:
    """Without the price and energy of one device these compare nothing; what is known is told."""
    problem = two_devices(replace(FRUGAL, price_per_hour=None), us=11, energy_j=None)
    (only,) = answer(problem, "heft", 1.0).result.front
    assert only.devices == ("fast",) and only.price is not None and only.energy_j == 0.5


@pytest.mark.parametrize("planner", SCHEDULERS.names())
@pytest.mark.parametrize("seed", range(2))
def test_all_that_was_considered_is_of_the_problem(planner: str, seed: int) -> None:
    """Also where a planner had left out modes, or planned for upper ends."""
    problem = random_problem(seed, devices=2)
    chosen = schedule_with(planner, problem, 0.1)
    assert chosen.considered
    for each in chosen.considered:
        assert {slot.call for slot in each.slots} == set(problem.numbers)
        assert judged(problem, each).objective >= chosen.objective * (1 - 1e-9)
    found, count = alternatives(problem, chosen, chosen.considered)
    keeping = [each for each in chosen.considered if next(faults(problem, each), None) is None]
    assert len(found) <= count and count >= len(keeping) - 1
    robust = answer(problem, planner, 0.1, robust=True)
    assert sum(each.chosen for each in robust.result.front) == 1
    assert robust.schedule.considered == ()


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1))
@settings(max_examples=100)
def test_a_front_has_exactly_what_nothing_beats(points: list[tuple[int, int, int]]) -> None:
    kept = undominated(points, lambda point: point)
    assert len(set(kept)) == len(kept)
    for point in set(points):
        beaten = any(
            other != point and all(a <= b for a, b in zip(other, point, strict=True))
            for other in points
        )
        assert (point in kept) == (not beaten)


def test_no_alternative_of_a_front_beats_another() -> None:
    def no_more(one: Alternative, other: Alternative) -> bool:
        return all((getattr(one, m) or 0.0) <= (getattr(other, m) or 0.0) for m in MEASURES)

    for seed in range(20):
        front = answer(random_problem(seed, devices=3), "heft", 0.1).result.front
        assert [each.latency_s for each in front] == sorted(each.latency_s for each in front)
        for one in front:
            for other in front:
                assert one is other or other.chosen or not no_more(one, other)
