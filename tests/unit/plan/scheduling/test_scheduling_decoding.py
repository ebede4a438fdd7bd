"""Orders and modes become schedules that break nothing; where they cannot, it is said."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, on_cores, plain_problem, problems
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.decoding import decode, in_order
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import NO_LIMITS, ScheduleDevice
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.scheduler import NothingFound


def shuffled(problem: SchedulingProblem, seed: int) -> tuple[list[int], list[int]]:
    """Any order, any modes."""
    random = Random(seed)
    order = list(range(len(problem.calls)))
    random.shuffle(order)
    return order, [random.randrange(len(call.modes)) for call in problem.calls]


@settings(max_examples=300, deadline=None)
@given(problem=problems(calls=9, devices=3, cores=3), seed=st.integers(0, 2**16))
def test_any_order_in_any_modes_keeps_the_limits_of_devices(
    problem: SchedulingProblem, seed: int
) -> None:
    order, modes = shuffled(problem, seed)
    free = replace(problem, limits=NO_LIMITS)
    with suppress(NothingFound):
        found = decode(free, order, modes)
        assert list(faults(free, found)) == []
        assert [found.slot[call.name].mode for call in free.calls] == modes
        assert found.objective >= bound(free) * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(problem=problems(calls=9, limits=False), seed=st.integers(0, 2**16))
def test_calls_follow_the_order_as_far_as_waits_let_them(
    problem: SchedulingProblem, seed: int
) -> None:
    order, _ = shuffled(problem, seed)
    taken = list(in_order(problem, order))
    assert sorted(taken) == sorted(order)
    for place, number in enumerate(taken):
        left = [each for each in order if each not in taken[:place]]
        free = [n for n in left if all(b in taken[:place] for b, _ in problem.before[n])]
        assert number == free[0]


def test_a_later_call_fills_a_gap() -> None:
    calls = {"a": (mode(us=10),), "b": (mode(cores=2, us=5),), "c": (mode(us=8),)}
    problem = plain_problem(calls, "a>b")
    found = decode(problem, (0, 1, 2), (0, 0, 0))
    assert found.slot["c"].begin_s == 0.0 and found.slot["c"].cores == (1,)
    assert found.latency_s == pytest.approx(15 * MICRO)


def test_a_call_stays_on_the_cores_of_what_it_waits_for() -> None:
    calls = {name: (mode(us=10),) for name in "abcd"}
    problem = plain_problem(calls, "a>c b>d", handoff_s=5 * MICRO)
    found = decode(problem, range(4), (0,) * 4)
    assert found.slot["a"].cores == found.slot["c"].cores
    assert found.slot["b"].cores == found.slot["d"].cores
    assert found.latency_s == pytest.approx(20 * MICRO)
    joined = plain_problem(calls, "a>c b>c c>d", handoff_s=5 * MICRO)
    assert decode(joined, range(4), (0,) * 4).latency_s == pytest.approx(35 * MICRO)


def test_memory_holds_a_call_back_until_there_is_enough() -> None:
    calls = {name: (mode(us=10, workspace_bytes=60),) for name in "abc"}
    device = ScheduleDevice(name="cpu", cores=3)
    ends = {}
    for memory in (None, 180, 120, 60):
        problem = plain_problem(calls, devices=(replace(device, memory_bytes=memory),))
        ends[memory] = decode(problem, range(3), (0,) * 3).latency_s / MICRO
    assert ends == pytest.approx({None: 10, 180: 10, 120: 20, 60: 30})
    problem = plain_problem(calls, devices=(replace(device, memory_bytes=59),))
    with pytest.raises(
        NothingFound, match="'a' .* needs 60 bytes of memory of 'cpu', which has 59"
    ):
        decode(problem, range(3), (0,) * 3)


@pytest.mark.parametrize(
    "limits",
    [{"power_w": 7.0, "idle_w": 2.0}, {"bytes_per_s": 1.6e8}],
    ids=["power", "bandwidth"],
)
def test_watts_and_bytes_per_second_hold_a_call_back(limits: dict[str, float]) -> None:
    """Each draws 4 W and moves 100 MB in a second."""
    calls = {name: (mode(us=10, energy_j=40 * MICRO, moved_bytes=1000),) for name in "ab"}
    free = plain_problem(calls, devices=(ScheduleDevice(name="cpu", cores=2),))
    assert decode(free, range(2), (0, 0)).latency_s == pytest.approx(10 * MICRO)
    device = ScheduleDevice(name="cpu", cores=2, **limits)  # type: ignore[arg-type]
    bound_by = plain_problem(calls, devices=(device,))
    assert decode(bound_by, range(2), (0, 0)).latency_s == pytest.approx(20 * MICRO)


def test_one_by_one() -> None:
    problem = plain_problem({name: on_cores(20) for name in "abc"})
    found = decode(problem, (2, 1, 0), (0, 0, 0), one_by_one=True)
    assert [slot.call for slot in found.slots] == ["c", "b", "a"]
    assert found.latency_s == pytest.approx(60 * MICRO)
