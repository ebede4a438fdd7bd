"""What every planner of schedules must keep, as checks that another package can run on its own.

    from tilewright.testing.schedulers import SchedulerConformance

    class TestMyScheduler(SchedulerConformance):
        scheduler = MyScheduler()

The problems are small and random, of every objective, with and without limits that one call after
the other on the first device keeps. A planner may give up on any of them (NothingFound); what it
answers must be a schedule that breaks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import ClassVar

from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import objective_of
from tilewright.plan.scheduling.parts import (
    NO_LIMITS,
    Limits,
    Link,
    Mode,
    Objective,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound, Scheduler

_OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput", "energy", "price")
_PROBLEMS = 40
_LIMIT_S = 1.0
_ROUNDING = 1e-9


def random_problem(seed: int, calls: int = 7, cores: int = 3) -> SchedulingProblem:
    """Up to so many calls, each of which reads few others, on one or two devices of up to so many
    cores, with hand-offs and transfers; in every third problem memory and a deadline are short."""
    random = Random(seed)
    devices = tuple(
        ScheduleDevice(
            name=f"device{number}",
            cores=random.randint(1, cores),
            idle_w=1.0,
            price_per_hour=1.0 + number,
            memory_bytes=1300 * calls if seed % 3 == 0 else None,
        )
        for number in range(random.randint(1, 2))
    )
    modes = [_modes(random, devices) for _ in range(random.randint(1, calls))]
    share = min(0.3, 2 / len(modes))
    pairs = [(b, a) for a in range(len(modes)) for b in range(a) if random.random() < share]
    read = {before for before, _ in pairs}
    most_s = sum(max(mode.latency_s for mode in each) for each in modes)
    return SchedulingProblem(
        name=f"random {seed}",
        devices=devices,
        calls=tuple(
            ScheduledCall(name=f"call{n}", modes=each, output_bytes=500, answer=n not in read)
            for n, each in enumerate(modes)
        ),
        waits=tuple(Wait(before=f"call{b}", after=f"call{a}", bytes=500) for b, a in pairs),
        links=tuple(
            Link(origin=one.name, destination=other.name, latency_s=2e-6, bytes_per_s=1e9)
            for one in devices
            for other in devices
            if one is not other
        ),
        handoff_s=random.choice((0.0, 1e-6)),
        objective=_OBJECTIVES[seed % len(_OBJECTIVES)],
        limits=Limits(deadlines_s={"": most_s + 20e-6}) if seed % 3 == 0 else NO_LIMITS,
    )


def _modes(random: Random, devices: tuple[ScheduleDevice, ...]) -> tuple[Mode, ...]:
    found: list[Mode] = []
    for device in devices:
        alone_s = random.randint(1, 40) * 1e-6
        for cores in range(1, device.cores + 1):
            latency_s = alone_s / cores + random.choice((0, 1, 4)) * 1e-6
            found.append(
                Mode(
                    device=device.name,
                    cores=cores,
                    latency_s=latency_s,
                    low_s=latency_s,
                    high_s=latency_s,
                    energy_j=cores * latency_s,
                    workspace_bytes=500,
                )
            )
    return tuple(found)


def _answers(scheduler: Scheduler) -> Iterator[tuple[SchedulingProblem, Schedule]]:
    for problem in map(random_problem, range(_PROBLEMS)):
        with suppress(NothingFound):
            yield problem, scheduler.schedule(problem, _LIMIT_S)


def check_nothing_is_broken(scheduler: Scheduler) -> None:
    """Every call has a slot in one of its modes on cores that nothing else has; waits, transfers
    and limits are kept."""
    for problem, found in _answers(scheduler):
        broken = next(faults(problem, found), None)
        assert broken is None, f"its schedule of {problem.title} breaks it: {broken}"


def check_numbers(scheduler: Scheduler) -> None:
    """The objective is that of the schedule, the bound not above it, nor above what is proven."""
    for problem, found in _answers(scheduler):
        value = objective_of(problem, found)
        assert abs(found.objective - value) <= _ROUNDING * value, (
            f"it says {found.objective} of {problem.title}, its schedule has {value}"
        )
        assert 0 <= found.bound <= value * (1 + _ROUNDING), "its bound is above its own schedule"
        assert value >= bound(problem) * (1 - _ROUNDING)


def check_same_answer(scheduler: Scheduler) -> None:
    """Asked twice, it answers the same."""
    for problem in map(random_problem, (1, 2, 3)):
        with suppress(NothingFound):
            first, second = (scheduler.schedule(problem, _LIMIT_S) for _ in range(2))
            assert first.slots == second.slots, f"its schedules of {problem.title} differ"


def check_name(scheduler: Scheduler) -> None:
    """It has a name, by which it is selected."""
    assert isinstance(scheduler.name, str) and scheduler.name, "it has no name"


CHECKS: tuple[Callable[[Scheduler], None], ...] = (
    check_nothing_is_broken,
    check_numbers,
    check_same_answer,
    check_name,
)


def check_scheduler(scheduler: Scheduler) -> None:
    """All checks one after the other; raises AssertionError with what was not kept."""
    for check in CHECKS:
        check(scheduler)


class SchedulerConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `scheduler`."""

    scheduler: ClassVar[Scheduler]

    def test_nothing_is_broken(self) -> None:
        check_nothing_is_broken(self.scheduler)

    def test_numbers(self) -> None:
        check_numbers(self.scheduler)

    def test_same_answer(self) -> None:
        check_same_answer(self.scheduler)

    def test_name(self) -> None:
        check_name(self.scheduler)
