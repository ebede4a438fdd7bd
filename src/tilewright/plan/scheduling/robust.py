"""Plans that hold where calls take as long as their intervals allow.

gain 1.30 over one call after the other with the expected times, 1.22 with the upper ends
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.plan.scheduling.beside import beside_each_other, slowdown_of
from tilewright.plan.scheduling.parts import Mode, ScheduledCall
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.simulator import simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """How many times as fast a schedule is as one call after the other: as expected, where all
    calls take the upper ends of their intervals, and where those that run at a time slow each other
    down; None where nothing is known of that."""

    expected: float
    upper: float
    beside: float | None = None


def at_upper_ends(problem: SchedulingProblem) -> SchedulingProblem:
    """The problem whose calls take the upper ends of their intervals."""
    return replace(problem, calls=tuple(map(_slowest, problem.calls)))


def expected(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """A schedule of `at_upper_ends(problem)` with the expected times; modes, cores and orders stay,
    so that it may break a limit of power or bandwidth that it kept."""
    moved = simulate(problem, schedule)
    return replace(moved, planner=schedule.planner, note=f"planned at upper ends; {schedule.note}")


def survival(problem: SchedulingProblem, schedule: Schedule) -> Survival:
    """How much of the gain of a schedule of the problem is left at the upper ends, and beside each
    other."""

    def upper_s(call: str, mode: Mode) -> float:
        del call
        return max(mode.high_s, mode.latency_s)

    alone = Sequential().schedule(problem, 0.0)
    slow = [simulate(problem, each, upper_s).latency_s for each in (alone, schedule)]
    slower = slowdown_of(problem, schedule)
    there = [beside_each_other(problem, each).latency_s for each in (alone, schedule)]
    return Survival(
        expected=alone.latency_s / schedule.latency_s if schedule.latency_s else 1.0,
        upper=slow[0] / slow[1] if slow[1] else 1.0,
        beside=None if slower is None else there[0] / there[1] if there[1] else 1.0,
    )


def _slowest(call: ScheduledCall) -> ScheduledCall:
    modes = (replace(mode, latency_s=max(mode.high_s, mode.latency_s)) for mode in call.modes)
    return replace(call, modes=tuple(modes))
