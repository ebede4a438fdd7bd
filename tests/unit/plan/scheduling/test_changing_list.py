"""A list that changes little by little is that of its order and modes at any time."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, random_problem
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import NO_LIMITS, ScheduleDevice, Wait
from tilewright.plan.scheduling.planners.changing_list import ChangingList
from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.problem import SchedulingProblem


def unlimited(problem: SchedulingProblem) -> SchedulingProblem:
    """The problem on devices without limits."""
    none = {"memory_bytes": None, "power_w": None, "bytes_per_s": None}
    devices = tuple(replace(device, **none) for device in problem.devices)
    return replace(problem, devices=devices, limits=NO_LIMITS)


def moved(known: ChangingList, random: Random) -> tuple[int, int]:
    """A call and a place anywhere between what it waits for and what waits for it."""
    number = random.randrange(len(known.order))
    least = max([known.places[each] + 1 for each in known.before[number]], default=0)
    after = [known.places[each] - 1 for each in known.after[number]]
    return number, random.randint(least, min(after, default=len(known.order) - 1))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sure=st.booleans())
def test_it_says_what_a_trial_of_all_calls_says(seed: int, sure: bool) -> None:
    """Where it is to be sure; else it may refuse a list, but takes none that ends too late."""
    random = Random(seed)
    problem = unlimited(random_problem(seed, calls=9, devices=3, cores=3))
    order, modes = list(range(len(problem.calls))), [0] * len(problem.calls)
    whole = LineUp(problem, order)
    if whole.latency_s(modes) == inf:
        return
    known = ChangingList(problem, order, modes, sure=sure)
    for _ in range(25):
        way = moved(known, random) if random.random() < 0.5 else None
        order = known.order.copy()
        if way is not None:
            order.remove(way[0])
            order.insert(way[1], way[0])
        number = random.randrange(len(modes))
        changed = {number: random.randrange(len(problem.calls[number].modes))}
        limit_s = known.latency_s * random.choice((0.99, 1.0001, 1.2, inf))
        whole.order = order
        modes = [changed.get(each, place) for each, place in enumerate(known.modes)]
        latency_s = whole.latency_s(modes)
        taken = known.takes(changed, limit_s, way)
        assert taken == (latency_s < limit_s) or not (sure or taken)
        if taken:
            assert (known.order, known.modes) == (order, modes)
            assert known.latency_s == pytest.approx(latency_s, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_its_schedule_keeps_all_waits_and_ends_when_it_says(seed: int) -> None:
    problem = unlimited(random_problem(seed, calls=9, devices=3, cores=3))
    order, modes = list(range(len(problem.calls))), [0] * len(problem.calls)
    if LineUp(problem, order).latency_s(modes) == inf:
        return
    known = ChangingList(problem, order, modes)
    made = known.schedule("it")
    assert list(faults(problem, made)) == []
    assert (made.planner, made.latency_s) == ("it", pytest.approx(known.latency_s))


def test_what_no_link_leads_to_is_no_list() -> None:
    devices = (ScheduleDevice(name="cpu"), ScheduleDevice(name="card"))
    both = (mode(), mode(device="card"))
    problem = plain_problem({"a": both, "b": both}, devices=devices)
    problem = replace(problem, waits=(Wait(before="a", after="b", bytes=1),))
    with pytest.raises(ValueError, match="way between devices"):
        ChangingList(problem, [0, 1], [0, 1])
    known = ChangingList(problem, [0, 1], [0, 0])
    assert not known.takes({1: 1}, inf)
    assert known.takes({0: 1, 1: 1}, inf)
    assert known.latency_s == pytest.approx(20 * MICRO)
