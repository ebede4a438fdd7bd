"""Versions of a kernel: the fastest alone, and one that moves less beside others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scheduling import MICRO, mode, plain_problem, problems
from tilewright.core.planning import PlanningCall, PlanningMode
from tilewright.core.predictions import Source
from tilewright.plan.kernel_versions import kernel_names, worth_choosing
from tilewright.plan.scheduling import quieter
from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.quieter import with_quieter_kernels

SHARED = ScheduleDevice(name="cpu", cores=2, contention_bytes_per_s=1e10)
LIMITED = ScheduleDevice(name="cpu", cores=2, bytes_per_s=2.5e10)


def two(device: ScheduleDevice, *, quiet: bool = True) -> SchedulingProblem:
    """Two calls that take 120 µs in turn, on both cores each. On one core each takes 100 µs and
    moves 2 MB, so that both are slower beside each other, or 105 µs and moves next to nothing."""
    loud = mode(us=100.0, moved_bytes=2_000_000, kernel="loud")
    soft = mode(us=105.0, moved_bytes=10_000, kernel="soft")
    wide = mode(cores=2, us=60.0, moved_bytes=2_000_000, kernel="loud")
    modes = (loud, soft, wide) if quiet else (loud, wide)
    return plain_problem({"a": modes, "b": modes}, devices=(device,))


@pytest.mark.parametrize("planner", ["auto", "heft", "threads", "ios", "stages", "nash", "cpsat"])
def test_lanes_are_worth_while_by_the_version_that_moves_less(planner: str) -> None:
    without = schedule_with(planner, two(SHARED, quiet=False), 2.0)
    assert without.latency_s == pytest.approx(120 * MICRO), "one after the other"
    problem = two(SHARED)
    found = schedule_with(planner, problem, 2.0)
    assert "soft" in {found.mode_of(problem, slot.call).kernel for slot in found.slots}
    assert beside_each_other(problem, found).latency_s < 108 * MICRO


def test_a_limit_of_bandwidth_takes_the_same_version() -> None:
    problem = two(LIMITED)
    found = schedule_with("cpsat", problem, 2.0)
    assert "soft" in {found.mode_of(problem, slot.call).kernel for slot in found.slots}
    assert found.latency_s == pytest.approx(105 * MICRO)


def test_what_runs_beside_nothing_is_the_fastest() -> None:
    calls = {call.name: call.modes for call in two(SHARED).calls}
    problem = plain_problem(calls, "a>b", devices=(SHARED,))
    found = schedule_with("auto", problem)
    assert {found.mode_of(problem, slot.call).kernel for slot in found.slots} == {"loud"}


def test_nothing_is_simulated_where_there_are_no_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = two(SHARED, quiet=False)
    schedule = schedule_with("sequential", problem)
    monkeypatch.setattr(quieter, "beside_each_other", None)
    assert with_quieter_kernels(problem, schedule) is None


@settings(max_examples=40, deadline=None)
@given(problem=problems(calls=8, devices=2, cores=3), gigabytes=st.floats(0.01, 10.0))
def test_versions_never_cost_anything(problem: SchedulingProblem, gigabytes: float) -> None:
    scaled = tuple(replace(d, contention_bytes_per_s=gigabytes * 1e9) for d in problem.devices)
    more = replace(problem, devices=scaled)
    calls = [
        replace(
            call,
            modes=(
                *call.modes,
                *(replace(m, latency_s=1.1 * m.latency_s, moved_bytes=0) for m in call.modes),
            ),
        )
        for call in more.calls
    ]
    more = replace(more, calls=tuple(calls))
    schedule = schedule_with("sequential", more)
    found = with_quieter_kernels(more, schedule)
    if found is not None:
        assert list(faults(more, found)) == []
        assert (
            beside_each_other(more, found).objective < beside_each_other(more, schedule).objective
        )


def way(us: float, moved: int, source: Source = "exact", **named: object) -> PlanningMode:
    return PlanningMode(
        device="llvm", implementation="direct", latency_s=us, moved_bytes=moved, source=source,
        **named,  # type: ignore[arg-type]
    )  # fmt: skip


def test_at_most_three_versions_none_of_which_another_beats() -> None:
    usual = way(10, 100)
    beaten, guessed = way(11, 100), way(9, 50, "model")
    assert worth_choosing([usual, beaten, guessed]) == [usual]
    faster, quieter, least = way(9, 120), way(12, 60), way(20, 10)
    assert worth_choosing([usual, quieter]) == [usual, quieter]
    found = worth_choosing([usual, least, quieter, faster])
    assert found == [faster, usual, least]
    assert worth_choosing([usual, way(30, 5, "model")])[-1].moved_bytes == 5


def test_equal_names_are_equal_kernels() -> None:
    one, other = way(10, 1, settings={"rows": 4}), way(9, 1, settings={"rows": 8})
    modes = (one, other, replace(one, cores=2, latency_s=6), replace(other, implementation="w"))
    call = PlanningCall(name="a", task="t", family="conv", inputs=("x",), output="y", modes=modes)
    assert kernel_names(call) == ["direct", "direct #2", "direct", "w"]
