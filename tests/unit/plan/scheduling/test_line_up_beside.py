"""What `nash` counts where calls slow each other down is what the simulator says."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.planners.line_up_beside import Beside
from tilewright.plan.scheduling.planners.nash import Nash
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot


def slowed(seed: int, scale: float, devices: int = 1) -> SchedulingProblem:
    """A drawn problem without limits whose calls slow each other down."""
    drawn = random_problem(seed, calls=9, devices=devices, cores=3, limits=False)
    made = tuple(replace(each, contention_bytes_per_s=scale) for each in drawn.devices)
    return replace(drawn, devices=made)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from((3e7, 1e8, 1e12)))
def test_the_simulator_says_the_same(seed: int, scale: float) -> None:
    problem = slowed(seed, scale)
    modes, queue = [0] * len(problem.calls), LineUp(problem)
    alone_s, beside = queue.latency_s(modes), Beside(queue)
    there_s = beside.latency_s(modes)
    places = zip(problem.calls, queue.begins_s, queue.ends_s, queue.cores, strict=True)
    slots = sorted(
        (
            Slot(call=call.name, mode=0, begin_s=begin, end_s=end, cores=cores)
            for call, begin, end, cores in places
        ),
        key=lambda slot: (slot.begin_s, slot.end_s, problem.numbers[slot.call]),
    )
    schedule = Schedule(planner="", slots=tuple(slots), objective=alone_s)
    assert next(faults(problem, schedule), None) is None
    assert there_s >= alone_s * (1 - 1e-9)
    assert there_s == pytest.approx(beside_each_other(problem, schedule).latency_s, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from((3e7, 1e8)))
def test_where_a_game_ends_no_call_gains_beside_the_others(seed: int, scale: float) -> None:
    problem = slowed(seed, scale, devices=2)
    (end, *_) = Nash().games(problem, inf)
    queue = LineUp(problem, end.behind)
    beside = Beside(queue)

    def there_s(modes: list[int]) -> float:
        return beside.latency_s(modes) if queue.latency_s(modes) < inf else inf

    assert end.converged
    now = there_s(list(end.modes))
    assert now == pytest.approx(end.cost[1])
    for number, call in enumerate(problem.calls):
        for place in range(len(call.modes)):
            other = [place if at == number else mode for at, mode in enumerate(end.modes)]
            assert there_s(other) >= now * (1 - 1e-8)


def test_players_share_the_cores_only_where_they_do_not_stream() -> None:
    """Two that stream and then two that do not, each 40 µs on one core or 30 on both: all side by
    side 80 µs are planned and 120 come of it, all in turn it is 120, and 100 what players find."""
    loud = (mode(us=40.0, moved_bytes=400_000), mode(cores=2, us=30.0, moved_bytes=400_000))
    quiet = (mode(us=40.0), mode(cores=2, us=30.0))
    cpu = (ScheduleDevice(name="cpu", cores=2, contention_bytes_per_s=1e10),)
    calls = {"a": loud, "b": loud, "c": quiet, "d": quiet}
    problem = plain_problem(calls, "a>c a>d b>c b>d", devices=cpu)
    found = Nash(most_s=inf).schedule(problem, inf)
    assert [len(found.slot[name].cores) for name in calls] == [2, 2, 1, 1]
    assert beside_each_other(problem, found).latency_s == pytest.approx(100 * MICRO)
    assert found.details["beside_s"] == pytest.approx(100 * MICRO)


def test_what_is_handed_over_is_told_by_cores_and_not_by_times() -> None:
    """The last call reads two, one of which had its core: alone it begins a hand-off after the
    other one, and a neighbour then makes the one on its core end later than that."""
    loud, quiet = mode(us=9.0, moved_bytes=90_000), mode(us=5.0)
    cpu = (ScheduleDevice(name="cpu", cores=4, contention_bytes_per_s=1e10),)
    calls = {"wide": (mode(cores=2, us=10.0),), "own": (loud,), "near": (loud,), "last": (quiet,)}
    problem = plain_problem(calls, "wide>last own>last", devices=cpu, handoff_s=2 * MICRO)
    queue = LineUp(problem)
    beside = Beside(queue)
    assert queue.latency_s([0] * 4) == pytest.approx(17 * MICRO)
    assert queue.cores[3] == queue.cores[1], "else nothing is tested"
    assert beside.latency_s([0] * 4) == pytest.approx(23 * MICRO)
