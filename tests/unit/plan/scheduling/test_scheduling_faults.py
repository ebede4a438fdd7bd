"""Schedules written by hand: what each breaks is found, and what each takes is what it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from helpers.scheduling import MICRO, mode, one_by_one, plain_problem, problems
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import measures, memory_over_time, objective_of
from tilewright.plan.scheduling.parts import Limits, Link, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot

CPU = ScheduleDevice(name="cpu", cores=2, idle_w=2.0, price_per_hour=3.6)
GPU = ScheduleDevice(name="cuda", idle_w=10.0, price_per_hour=7.2)
LINK = Link(origin="cpu", destination="cuda", latency_s=5 * MICRO, bytes_per_s=1e9)


def slot(call: str, begin: float, end: float, *cores: int, place: int = 0) -> Slot:
    """A slot in microseconds."""
    return Slot(
        call=call, mode=place, begin_s=begin * MICRO, end_s=end * MICRO, cores=cores or (0,)
    )


def sent(begin: float, end: float, call: str = "b") -> TransferSlot:
    """A transfer from the CPU to the GPU."""
    return TransferSlot(
        call=call, origin="cpu", destination="cuda", begin_s=begin * MICRO, end_s=end * MICRO
    )


def branches(**named: Any) -> SchedulingProblem:
    """a on both cores, b and c after it beside each other, d on the GPU after both; c's result is
    sent, too. Results are of 1000, 2000, 4000 and 8000 bytes."""
    fields: dict[str, Any] = {"moved_bytes": 1000, "energy_j": 40 * MICRO, "weight_bytes": 100}
    calls = (
        ScheduledCall(name="a", modes=(mode(cores=2, us=10, **fields),), output_bytes=1000),
        ScheduledCall(name="b", modes=(mode(us=20, **fields),), output_bytes=2000),
        ScheduledCall(
            name="c", modes=(mode(us=10, **fields), mode(cores=2, us=8)), output_bytes=4000
        ),
        ScheduledCall(
            name="d",
            modes=(mode("cuda", us=10, workspace_bytes=50, energy_j=400 * MICRO),),
            output_bytes=8000,
            answer=True,
        ),
    )
    waits = (
        *(Wait(before="a", after=name, bytes=1000) for name in "bc"),
        Wait(before="b", after="d", bytes=2000),
        Wait(before="c", after="d", bytes=4000),
    )
    given: dict[str, Any] = {"handoff_s": MICRO, "links": (LINK,), "devices": (CPU, GPU), **named}
    return SchedulingProblem(calls=calls, waits=waits, **given)


RIGHT = Schedule(
    planner="hand",
    slots=(
        slot("a", 0, 10, 0, 1),
        slot("b", 11, 31, 0),
        slot("c", 11, 21, 1),
        slot("d", 39, 49),
    ),
    transfers=(sent(21, 30, "c"), sent(31, 38)),
    objective=49 * MICRO,
)


def with_slot(*changed: Slot, **fields: Any) -> Schedule:
    """The right schedule with other slots for some calls."""
    others = {each.call: each for each in changed}
    return replace(
        RIGHT, slots=tuple(others.get(each.call, each) for each in RIGHT.slots), **fields
    )


def test_the_right_schedule_breaks_nothing_and_takes_what_it_should() -> None:
    problem = branches()
    assert list(faults(problem, RIGHT)) == []
    found = measures(problem, RIGHT)
    assert found.latency_s == pytest.approx(49 * MICRO)
    # core 0 from 0 to 31 is held longest by one request
    assert found.period_s == pytest.approx(31 * MICRO)
    assert found.energy_j == pytest.approx((3 * 40 + 400 + 12 * 49) * MICRO)
    assert found.price == pytest.approx(10.8 / 3600 * 49 * MICRO)
    # b and c with their weights, and a's result that both read
    assert found.peak_memory_bytes == {"cpu": 300 + 1000 + 2000 + 4000, "cuda": 6000 + 8000 + 50}
    assert found.peak_power_w["cpu"] == pytest.approx(2 + 40 / 20 + 40 / 10)
    assert found.peak_power_w["cuda"] == pytest.approx(10 + 40)


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        ("latency", 49 * MICRO),
        ("throughput", 31 * MICRO),
        ("energy", 1108 * MICRO),
        ("price", 10.8 / 3600 * 49 * MICRO),
    ],
)
def test_objectives(objective: Any, value: float) -> None:
    problem = branches()
    known = replace(
        problem,
        calls=tuple(replace(call, modes=call.modes[:1]) for call in problem.calls),
        objective=objective,
    )
    assert objective_of(known, RIGHT) == pytest.approx(value)


def test_an_energy_that_nobody_knows_is_told() -> None:
    problem = branches()
    other = with_slot(slot("c", 32, 40, 0, 1, place=1))
    found = measures(problem, other)
    assert found.energy_j is None
    assert found.energy_reason == "nobody knows the energy_j of call 'c' on 'cpu'"
    unpriced = replace(problem, devices=(replace(CPU, price_per_hour=None), GPU))
    assert measures(unpriced, RIGHT).price is None


BROKEN: dict[str, tuple[Schedule, str]] = {
    "a call that is missing": (replace(RIGHT, slots=RIGHT.slots[1:]), "'a' has 0 slots"),
    "a call twice": (replace(RIGHT, slots=RIGHT.slots * 2), "'a' has 2 slots"),
    "a call of another problem": (
        replace(RIGHT, slots=(*RIGHT.slots, slot("x", 0, 1))),
        "there is no call 'x'",
    ),
    "a mode that is not there": (with_slot(slot("b", 11, 31, 0, place=1)), "'b' has no mode 1"),
    "too few cores": (with_slot(slot("a", 0, 10, 0)), r"the cores \(0,\), its mode 2"),
    "a core twice": (with_slot(slot("a", 0, 10, 0, 0)), r"the cores \(0, 0\), its mode 2"),
    "a core that is not there": (with_slot(slot("b", 11, 31, 2)), "that 'cpu' has not"),
    "before the start": (with_slot(slot("a", -1, 9, 0, 1)), "begins at -1e-06 s"),
    "shorter than its mode": (with_slot(slot("b", 11, 30, 0)), "'b' takes 1.9"),
    "longer than its mode": (with_slot(slot("b", 11, 32, 0)), "'b' takes 2.1"),
    "a core for two": (with_slot(slot("c", 11, 21, 0)), "core 0 of 'cpu' has"),
    "without a hand-off": (with_slot(slot("c", 10, 20, 1)), "'c' begins before the result of 'a'"),
    "before what it waits for": (with_slot(slot("d", 38, 48)), "'d' begins before"),
    "never sent": (replace(RIGHT, transfers=RIGHT.transfers[:1]), "'b' never goes to 'cuda'"),
    "sent twice": (
        replace(RIGHT, transfers=(*RIGHT.transfers, sent(39, 46))),
        "'b' goes to 'cuda' 2 times",
    ),
    "sent too early": (
        replace(RIGHT, transfers=(sent(21, 30, "c"), sent(30, 37))),
        "'b' is sent before it is there",
    ),
    "sent too fast": (
        replace(RIGHT, transfers=(sent(21, 30, "c"), sent(31, 37))),
        "sending the result of 'b' takes",
    ),
    "two on a link": (
        replace(with_slot(slot("d", 40, 50)), transfers=(sent(30, 39, "c"), sent(31, 38))),
        "'c' and 'b' go 'cpu' → 'cuda' at a time",
    ),
    "a way that is not there": (
        replace(
            RIGHT,
            transfers=(*RIGHT.transfers, replace(sent(0, 1, "d"), origin="cuda")),
        ),
        "no link lets the result of 'd' go",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_a_schedule_breaks_is_found(fault: str) -> None:
    schedule, said = BROKEN[fault]
    found = list(faults(branches(), schedule))
    with pytest.raises(AssertionError, match=said):
        raise AssertionError("; ".join(found))


LIMITED: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({"devices": (replace(CPU, memory_bytes=7299), GPU)}, "'cpu' has memory_bytes 7299"),
    "power": ({"devices": (replace(CPU, power_w=7.9), GPU)}, "'cpu' has power_w 5.9"),
    "bandwidth": ({"devices": (replace(CPU, bytes_per_s=1.4e8), GPU)}, "has bytes_per_s 1.4e"),
    "deadline": ({"limits": Limits(deadlines_s={"": 48 * MICRO})}, "ends after 4.9e-05 s"),
}
KEPT: dict[str, dict[str, Any]] = {
    "memory": {"devices": (replace(CPU, memory_bytes=7300), GPU)},
    "power": {"devices": (replace(CPU, power_w=8.0), GPU)},
    "bandwidth": {"devices": (replace(CPU, bytes_per_s=1.5e8), GPU)},
    "deadline": {"limits": Limits(deadlines_s={"": 49 * MICRO})},
}


@pytest.mark.parametrize("limit", LIMITED)
def test_a_limit_is_kept_just_so_or_broken(limit: str) -> None:
    fields, said = LIMITED[limit]
    (found,) = faults(branches(**fields), RIGHT)
    assert said in found
    assert list(faults(branches(**KEPT[limit]), RIGHT)) == []


def test_an_energy_limit() -> None:
    calls = {"a": (mode(energy_j=5 * MICRO),)}
    device = (replace(CPU, idle_w=1.0),)
    for most, broken in ((15.0, False), (14.9, True)):
        problem = plain_problem(
            calls, devices=device, limits=Limits(deadlines_s={}, energy_j=most * MICRO)
        )
        assert bool(list(faults(problem, one_by_one(problem)))) is broken


def test_requests_overlap_only_as_far_as_limits_allow() -> None:
    calls = {"a": (mode(us=10, weight_bytes=1),), "b": (mode(us=10, workspace_bytes=50),)}
    for memory, period in ((None, 10), (151, 10), (150, 20), (101, 20)):
        problem = plain_problem(
            calls,
            "a>b",
            devices=(replace(CPU, memory_bytes=memory),),
            objective="throughput",
        )
        outputs = replace(problem.calls[0], output_bytes=50)
        problem = replace(problem, calls=(outputs, problem.calls[1]))
        staged = Schedule(
            planner="hand", slots=(slot("a", 0, 10, 0), slot("b", 10, 20, 1)), objective=0.0
        )
        assert objective_of(problem, staged) == pytest.approx(period * MICRO)
        assert list(faults(problem, staged)) == []


@settings(max_examples=150, deadline=None)
@given(problems())
def test_what_lies_in_memory_over_time(problem: SchedulingProblem) -> None:
    """Between two moments of change there lies what the calls then say, one by one."""
    schedule = one_by_one(problem)
    assert list(faults(problem, schedule)) == []
    home = problem.devices[0].name
    steps = list(memory_over_time(problem, schedule)[home].steps())
    ends = [time for time, _ in steps[1:]] + [schedule.latency_s]
    for (begin, held), end in zip(steps, ends, strict=True):
        if end <= begin:
            continue
        now = (begin + end) / 2
        expected = 0
        for number, call in enumerate(problem.calls):
            own, chosen = schedule.slot[call.name], schedule.mode_of(problem, call.name)
            readers = [problem.calls[reader].name for reader, _ in problem.after[number]]
            last = max([schedule.slot[name].end_s for name in readers] + [own.end_s])
            until = schedule.latency_s if call.answer else last
            expected += chosen.weight_bytes
            expected += chosen.workspace_bytes * (own.begin_s < now < own.end_s)
            expected += call.output_bytes * (own.begin_s < now < until)
        assert held == expected
