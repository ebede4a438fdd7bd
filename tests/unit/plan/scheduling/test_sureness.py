"""`auto` keeps one call after the other where it is not sure that a plan gains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.scheduling import MICRO, mode, plain_problem
from tilewright.plan.lanes import in_its_stages
from tilewright.plan.scheduling.answering import answer, answer_in_parts
from tilewright.plan.scheduling.parts import Limits, Link, ScheduleDevice
from tilewright.plan.scheduling.planners.sequential import Sequential, on_one_device
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.sureness import IN_PLACE, PREDICTED, merging_gain, surely


def _branches(
    gain: float, one: dict[str, Any] | None = None, handoff_us: float = 0.0
) -> SchedulingProblem:
    """Two calls that one after the other take `gain` times what they take beside each other, on a
    core each, where hand-offs cost nothing."""
    modes = (mode(us=100, **(one or {})), mode(cores=2, us=50 * gain))
    calls = {"begin": (mode(cores=2, us=1),), "a": modes, "b": modes, "end": (mode(cores=2, us=1),)}
    waits = "begin>a begin>b a>end b>end"
    return plain_problem(calls, waits, handoff_s=handoff_us * MICRO)


def _told(problem: SchedulingProblem, planner: str | None = None) -> Any:
    return answer(problem, planner, 1.0, as_run=in_its_stages).result


def _is_beside(result: Any) -> bool:
    a, b = (slot for slot in result.slots if slot.call in "ab")
    return a.begin_s < b.end_s and b.begin_s < a.end_s


def test_a_sure_gain_is_planned() -> None:
    found = _told(_branches(1.3))
    assert _is_beside(found) and found.gain > 1.25 and "auto keeps" not in found.note


def test_a_promise_as_wrong_as_promises_were_is_not_planned() -> None:
    found = _told(_branches(IN_PLACE - 0.01))
    assert not _is_beside(found) and found.planner == "sequential"
    assert found.gain == found.gain_low == 1.0
    assert f"such promises were up to {IN_PLACE:.2f} times what runs gave" in found.note
    beside = [each for each in found.front if not each.chosen]
    assert beside and min(each.latency_s for each in beside) < found.latency_s


def test_no_gain_is_told_where_there_is_none() -> None:
    """Not "promises 1.00×, and such promises were up to 1.09 times what runs gave"."""
    found = _told(_branches(1.0005))
    assert found.note.endswith("because nothing that was found is a thousandth faster")


def test_a_gain_that_intervals_leave_open_is_not_planned() -> None:
    """On one core calls took up to 1.4 times as long in another round."""
    found = _told(_branches(1.3, {"high_s": 140 * MICRO}))
    assert not _is_beside(found)
    assert found.note.startswith("auto keeps one call after the other, because ")
    assert "by the intervals of its times 0.9" in found.note


def test_a_gain_that_longer_hand_offs_eat_up_is_not_planned() -> None:
    """Two hand-offs of 12 µs leave 126 of 142 µs, two of 24 µs more than all."""
    assert _is_beside(_told(_branches(1.4, handoff_us=4)))
    found = _told(_branches(1.4, handoff_us=12))
    assert not _is_beside(found) and "hand-offs take twice as long" in found.note


def test_hand_offs_between_stages_count_as_often_as_others() -> None:
    """`c` reads `a` alone, which ends soon, but its stage begins behind `b`: a hand-off of 20 µs
    leaves 126 of 144 µs, one of 40 more than all. Without the stage `c` would begin after 105."""
    calls = {
        "a": (mode(us=60), mode(cores=2, us=39)),
        "b": (mode(us=105), mode(cores=2, us=104)),
        "c": (mode(cores=2, us=1),),
    }
    problem = plain_problem(calls, "a>c", handoff_s=20 * MICRO)
    assert _is_beside(_told(replace(problem, handoff_s=8 * MICRO)))
    found = _told(problem)
    assert not _is_beside(found) and "hand-offs take twice as long" in found.note


def _merged(us: float, **more: Any) -> tuple[SchedulingProblem, Schedule]:
    """A call on two cores, in which two of 50 µs are merged, and what begins and ends beside it."""
    ends = (mode(cores=2, us=1),)
    calls = {"begin": ends, "a + b": (mode(cores=2, us=us, **more),), "end": ends}
    problem = plain_problem(calls)
    return problem, Sequential().schedule(problem, 0.0)


@pytest.mark.parametrize(
    ("us", "more", "doubt"),
    [
        (60, {}, ""),
        (60, {"high_s": 110 * MICRO}, "merging promises 1.65×, and by the intervals of its times"),
        (95, {}, "such promises were up to 1.09 times what runs gave"),
        (90, {"source": "model", "low_s": 50 * MICRO, "high_s": 140 * MICRO}, "by predicted times"),
        (70, {"source": "model", "low_s": 50 * MICRO, "high_s": 140 * MICRO}, ""),
        (110, {}, "merging promises 0.91×, which is no gain"),
    ],
)
def test_merging_gains_surely_by_the_same_rule(us: float, more: dict[str, Any], doubt: str) -> None:
    """102 µs with all calls apart, and as many as the merged call takes, with two more."""
    apart = _branches(1.0)
    promise = merging_gain(_merged(us, **more), (apart, Sequential().schedule(apart, 0.0)))
    assert promise.gain == pytest.approx(102 / (us + 2))
    assert promise.gain_low <= promise.gain <= promise.gain_high
    assert promise.sure == (not doubt) and doubt in promise.doubt


def test_a_gain_that_neighbours_eat_up_is_told_as_that() -> None:
    """Not "nothing that was found is a thousandth faster"."""
    moved = {"moved_bytes": 1_000_000}
    calls = {name: (mode(us=100, **moved), mode(cores=2, us=60, **moved)) for name in "ab"}
    free = plain_problem(calls)
    streaming = ScheduleDevice(name="cpu", cores=2, contention_bytes_per_s=1e10)
    planned = schedule_with("heft", free)
    kept = surely(replace(free, devices=(streaming,)), planned, in_its_stages)
    assert kept.note.endswith("because calls slow each other down by as much as heft gains")


@pytest.mark.parametrize(("gain", "beside"), [(PREDICTED - 0.02, False), (PREDICTED + 0.1, True)])
def test_predicted_times_must_promise_more_than_they_did_in_vain(gain: float, beside: bool) -> None:
    wide: dict[str, Any] = {"source": "model", "low_s": 50 * MICRO, "high_s": 200 * MICRO}
    found = _told(_branches(gain, wide))
    assert _is_beside(found) == beside
    assert ("was promised so where runs gained nothing" in found.note) != beside


def test_predicted_times_in_narrow_intervals_are_trusted() -> None:
    found = _told(_branches(1.1, {"source": "model"}))
    assert _is_beside(found) and found.gain_low > 1.0


@pytest.mark.parametrize("planner", ["ios", "stages", "cpsat", "nash", "heft"])
def test_planners_that_are_asked_for_answer_themselves(planner: str) -> None:
    found = _told(_branches(IN_PLACE - 0.01), planner)
    assert _is_beside(found) and "auto keeps" not in found.note


def test_what_breaks_a_limit_is_not_kept() -> None:
    problem = _branches(IN_PLACE - 0.01)
    soon = replace(problem, limits=Limits(deadlines_s={"": 103 * MICRO}))
    assert _is_beside(_told(soon))


def test_where_plans_are_run_as_they_stand_nothing_is_kept_back() -> None:
    """Other devices, several networks and problems in files are told as they were planned."""
    found = answer(_branches(IN_PLACE - 0.01), None, 1.0).result
    assert _is_beside(found)


def test_a_robust_plan_is_judged_by_its_expected_times() -> None:
    found = answer(_branches(1.02), None, 1.0, robust=True, as_run=in_its_stages).result
    assert not _is_beside(found) and "auto keeps" in found.note


# in parts: several networks, or several devices


def _pair(gain: float, **named: Any) -> SchedulingProblem:
    """Two networks of a call each; one after the other on both cores they take `gain` times what
    they take beside each other on a core each."""
    modes = (mode(us=100, **named), mode(cores=2, us=50 * gain, **named))
    problem = plain_problem({"one/a": modes, "two/b": modes})
    calls = (replace(each, network=each.name[:3]) for each in problem.calls)
    return replace(problem, calls=tuple(calls))


def _over_two(gain: float, **named: Any) -> SchedulingProblem:
    """Two towers that one GPU computes in 100 µs each and a CPU in as much longer as `gain` is less
    than two, if one is on each; the CPU has the inputs and wants the output. Nothing is sent for
    free: what goes over a way takes 1 µs."""
    far = mode("gpu", us=100, **named)
    near = mode(us=200 / gain, **named), mode(cores=2, us=200 / gain, **named)
    host = (mode(us=0),)
    ways = (("cpu", "gpu"), ("gpu", "cpu"))
    return plain_problem(
        {"input": host, "a": (far, *near), "b": (far, *near), "outputs": host},
        "input>a input>b a>outputs b>outputs",
        devices=(ScheduleDevice(name="cpu", cores=2), ScheduleDevice(name="gpu", kind="cuda")),
        links=tuple(
            Link(origin=a, destination=b, latency_s=1 * MICRO, bytes_per_s=1e12) for a, b in ways
        ),
    )


def _used(result: Any) -> set[str]:
    return {slot.device for slot in result.slots if slot.end_s > slot.begin_s}


def test_networks_whose_gain_is_not_sure_are_one_after_the_other() -> None:
    found = answer_in_parts(_pair(IN_PLACE - 0.01), None, 1.0).result
    first, second = found.slots
    assert first.end_s <= second.begin_s and len(first.cores) == len(second.cores) == 2
    assert found.planner == "sequential" and found.gain == found.gain_low == 1.0
    assert found.note.startswith("auto keeps all calls one after the other on 'cpu', because ")
    assert f"such promises were up to {IN_PLACE:.2f} times what runs gave" in found.note
    assert min(each.latency_s for each in found.front if not each.chosen) < found.latency_s


def test_networks_that_surely_gain_are_beside_each_other() -> None:
    first, second = answer_in_parts(_pair(1.3), None, 1.0).result.slots
    assert first.begin_s == second.begin_s == 0.0


@pytest.mark.parametrize(("gain", "both"), [(PREDICTED - 0.1, False), (PREDICTED + 0.2, True)])
def test_several_devices_must_promise_more_than_promises_were_wrong(
    gain: float, both: bool
) -> None:
    wide: dict[str, Any] = {"source": "model", "low_s": 20 * MICRO, "high_s": 400 * MICRO}
    found = answer_in_parts(_over_two(gain, **wide), None, 1.0).result
    assert _used(found) == ({"cpu", "gpu"} if both else {"gpu"})
    assert ("auto keeps all calls one after the other on 'gpu'" in found.note) != both


def test_the_single_device_is_the_fastest_that_keeps_the_limits() -> None:
    """The GPU has no memory for what it is to compute."""
    problem = _over_two(1.05, weight_bytes=100)
    cpu, gpu = problem.devices
    small = replace(problem, devices=(cpu, replace(gpu, memory_bytes=150)))
    told = [name for name, _ in on_one_device(small)]
    assert told == ["cpu"] and [name for name, _ in on_one_device(problem)] == ["cpu", "gpu"]
    late = replace(problem, limits=Limits(deadlines_s={"": 197 * MICRO}))
    assert _used(answer_in_parts(late, None, 1.0).result) == {"cpu", "gpu"}


def test_where_no_device_computes_all_nothing_is_kept_back() -> None:
    near, far = (mode(us=100),), (mode("gpu", us=100),)
    problem = _over_two(1.5)
    calls = [replace(c, modes={"a": near, "b": far}.get(c.name, c.modes)) for c in problem.calls]
    found = answer_in_parts(replace(problem, calls=tuple(calls)), None, 1.0).result
    assert _used(found) == {"cpu", "gpu"} and "auto keeps" not in found.note


@pytest.mark.parametrize("planner", ["heft", "cpsat"])
def test_planners_that_are_asked_for_answer_themselves_in_parts_too(planner: str) -> None:
    found = answer_in_parts(_pair(IN_PLACE - 0.01), planner, 1.0).result
    assert found.planner == planner and found.gain > 1.05
