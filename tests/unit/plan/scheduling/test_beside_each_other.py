"""Calls that run at a time slow each other down by what they stream, and plans heed it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, problems
from tilewright.core.errors import ModelError
from tilewright.plan.scheduling.answering import answer, result_of
from tilewright.plan.scheduling.beside import beside_each_other, slowdown_of
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.report.schedules import gained

CPU = (ScheduleDevice(name="cpu", cores=2, contention_bytes_per_s=1e10),)
STREAMING, COMPUTING = 1_000_000, 0
"""Bytes that a call of 100 µs moves: at 10 GB/s, so that two of them take twice as long."""


def two(first: int, second: int, *, together_us: float = 60.0) -> SchedulingProblem:
    """Two calls of 100 µs on one core, of `together_us` on both, that move so many bytes."""
    calls = {
        name: (
            mode(us=100.0, moved_bytes=moved),
            mode(cores=2, us=together_us, moved_bytes=moved),
        )
        for name, moved in (("a", first), ("b", second))
    }
    return plain_problem(calls, devices=CPU)


def test_both_take_longer_while_both_run() -> None:
    problem = two(STREAMING * 8 // 10, STREAMING, together_us=300.0)
    planned = schedule_with("heft", problem)
    assert planned.latency_s == pytest.approx(100 * MICRO)
    there = beside_each_other(problem, planned)
    assert there.latency_s == pytest.approx(180 * MICRO)  # 1 + 8 × 10 / 10²
    assert {slot.call: slot.cores for slot in there.slots} == {
        slot.call: slot.cores for slot in planned.slots
    }


def test_what_streams_nothing_slows_nobody_down() -> None:
    problem = two(STREAMING, COMPUTING)
    planned = schedule_with("heft", problem)
    assert beside_each_other(problem, planned).latency_s == pytest.approx(planned.latency_s)
    slower = slowdown_of(problem, planned)
    assert slower is not None
    assert slower("a", frozenset()) == slower("a", frozenset({"b"})) == 1.0


def test_a_plan_that_loses_beside_each_other_is_not_taken() -> None:
    """Side by side 100 µs are planned and 200 come of it; in turn on both cores it is 120."""
    for planner in ("auto", "heft", "threads"):
        found = schedule_with(planner, two(STREAMING, STREAMING))
        assert found.latency_s == pytest.approx(120 * MICRO), planner
    assert schedule_with("auto", two(COMPUTING, COMPUTING)).latency_s < 110 * MICRO


def test_what_is_left_of_the_gain_is_told() -> None:
    problem = two(STREAMING // 4, STREAMING // 4)
    found = answer(problem, "heft", 1.0)
    assert found.result.gain == pytest.approx(1.2)
    assert found.result.gain_beside == pytest.approx(120 / 106.25)  # 1 + 2.5² / 10²
    assert "1.13× is left" in gained(found.result)
    unknown = replace(problem, devices=(replace(CPU[0], contention_bytes_per_s=None),))
    assert result_of(unknown, schedule_with("heft", unknown)).gain_beside is None
    assert slowdown_of(unknown, found.schedule) is None
    assert beside_each_other(unknown, found.schedule) is found.schedule


@settings(max_examples=60, deadline=None)
@given(problem=problems(calls=8, devices=2, cores=3), gigabytes=st.floats(1.0, 100.0))
def test_nothing_is_ever_sooner(problem: SchedulingProblem, gigabytes: float) -> None:
    known = replace(
        problem,
        devices=tuple(
            replace(each, contention_bytes_per_s=1e9 * gigabytes) for each in problem.devices
        ),
    )
    planned = schedule_with("sequential", known)
    alone = beside_each_other(known, planned)
    assert alone.latency_s == pytest.approx(planned.latency_s), "nothing runs beside anything"
    planned = schedule_with("heft", known)
    there = beside_each_other(known, planned)
    assert there.latency_s >= planned.latency_s * (1 - 1e-9)


def test_no_scale_is_zero() -> None:
    with pytest.raises(ModelError, match="contention_bytes_per_s"):
        replace(two(0, 0), devices=(replace(CPU[0], contention_bytes_per_s=0.0),))
