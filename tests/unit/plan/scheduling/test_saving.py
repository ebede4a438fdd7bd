"""Steps by chance draw less in the end, in time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.planners.saving import thriftier_lists
from tilewright.plan.scheduling.problem import SchedulingProblem


def steps(count: int) -> Callable[[], float]:
    """A clock that has so many ticks."""
    ticks = iter(range(count + 1))
    return lambda: next(ticks) / count


def drawn_j(problem: SchedulingProblem, modes: list[int]) -> float:
    """What all calls draw."""
    pairs = zip(problem.calls, modes, strict=True)
    return sum(call.modes[place].energy_j or 0.0 for call, place in pairs)


def test_calls_on_all_cores_come_to_run_beside_each_other() -> None:
    """Neither alone may go to one core: 10 + 18 µs. Both may, beside each other."""
    both = (mode(cores=2, us=10, energy_j=10.0), mode(us=18, energy_j=8.0))
    problem = plain_problem(
        {"a": both, "b": both}, devices=(ScheduleDevice(name="cpu", cores=2, idle_w=0.0),)
    )
    found = thriftier_lists(problem, [0, 1], [0, 0], 20.1 * MICRO, steps(50))
    assert (found[0].modes, found[0].latency_s) == ([1, 1], pytest.approx(18 * MICRO))
    assert found[-1].modes == [0, 0]


def test_where_devices_draw_when_idle_a_late_end_costs_energy() -> None:
    """The slower clock draws 1 µJ less itself, and 2 W for the 4 µs that it takes longer."""
    modes = (mode(us=10, energy_j=5e-6), mode(us=14, energy_j=4e-6))
    for idle_w, place in ((2.0, 0), (0.1, 1)):
        device = ScheduleDevice(name="cpu", cores=1, idle_w=idle_w)
        problem = plain_problem({"a": modes}, devices=(device,))
        (found, *_) = thriftier_lists(problem, [0], [0], inf, steps(50))
        assert found.modes == [place]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_list_is_in_time_and_keeps_every_wait(seed: int) -> None:
    problem = random_problem(seed, calls=9, devices=2, cores=3, limits=False, objective="energy")
    order, modes = list(range(len(problem.calls))), [0] * len(problem.calls)
    latest_s = LineUp(problem, order).latency_s(modes)
    if latest_s == inf:
        return
    found = thriftier_lists(problem, order, modes, 1.05 * latest_s, steps(80), seed)
    for each in found:
        places = {number: place for place, number in enumerate(each.order)}
        for number, waits in enumerate(problem.before):
            assert all(places[other] < places[number] for other, _ in waits)
        again_s = LineUp(problem, each.order).latency_s(each.modes)
        assert again_s == pytest.approx(each.latency_s)
        assert again_s <= 1.05 * latest_s
    if not any(device.idle_w for device in problem.devices):
        joules = [drawn_j(problem, each.modes) for each in found]
        assert joules == sorted(joules)
        assert joules[-1] <= drawn_j(problem, modes) * (1 + 1e-9)
