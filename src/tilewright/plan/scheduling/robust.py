"""Plans that hold where calls take as long as their intervals allow.

gain 1.30 over one call after the other with the expected times, 1.22 with the upper ends
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, hypot, log

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
    down; None where nothing is known of that. From `low` to `high` it is by the intervals (see
    `gain_interval`)."""

    expected: float
    upper: float
    low: float
    high: float
    beside: float | None = None


def at_upper_ends(problem: SchedulingProblem) -> SchedulingProblem:
    """The problem whose calls take the upper ends of their intervals."""
    return replace(problem, calls=tuple(map(_slowest, problem.calls)))


def expected(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """A schedule of `at_upper_ends(problem)` with the expected times; modes, cores and orders stay,
    so that it may break a limit of power or bandwidth that it kept."""
    moved = simulate(problem, schedule)
    return replace(moved, planner=schedule.planner, note=f"planned at upper ends; {schedule.note}")


def survival(
    problem: SchedulingProblem,
    schedule: Schedule,
    alone: Schedule | None = None,
    apart: SchedulingProblem | None = None,
) -> Survival:
    """How much of the gain of a schedule of the problem is left at the upper ends, beside each
    other, and by the intervals; over `alone`, or one call after the other. `apart` is the problem
    that `alone` is of, where that is another one, such as the same networks with other calls."""

    def upper_s(call: str, mode: Mode) -> float:
        del call
        return max(mode.high_s, mode.latency_s)

    alone = alone or Sequential().schedule(problem, 0.0)
    both = (apart or problem, alone), (problem, schedule)
    slow = [simulate(own, each, upper_s).latency_s for own, each in both]
    slower = slowdown_of(problem, schedule)
    there = [beside_each_other(own, each).latency_s for own, each in both]
    low, high = gain_interval(*both)
    return Survival(
        expected=alone.latency_s / schedule.latency_s if schedule.latency_s else 1.0,
        upper=slow[0] / slow[1] if slow[1] else 1.0,
        low=low,
        high=high,
        beside=None if slower is None else there[0] / there[1] if there[1] else 1.0,
    )


def gain_interval(
    alone: tuple[SchedulingProblem, Schedule], faster: tuple[SchedulingProblem, Schedule]
) -> tuple[float, float]:
    """How many times as fast a schedule, with its problem, is as another one at least and at most:
    where all times on a number of cores of a device lie at one end of their intervals, as those of
    one model do that is wrong there. What each of these numbers does to the gain by itself, in its
    logarithm, is put together by the root of the squares."""
    used = (each.mode_of(own, s.call) for own, each in (alone, faster) for s in each.slots)
    groups = {(mode.device, mode.cores) for mode in used}

    def gain(group: tuple[str, int] | None, *, upper: bool) -> float:
        def latency_s(_call: str, mode: Mode) -> float:
            if (mode.device, mode.cores) != group:
                return mode.latency_s
            least, most = min(mode.low_s, mode.latency_s), max(mode.high_s, mode.latency_s)
            return most if upper else least

        first, second = (simulate(*each, latency_s).latency_s for each in (alone, faster))
        return log(first / second) if first and second else 0.0

    usual = gain(None, upper=False)
    moved = [gain(group, upper=upper) - usual for group in groups for upper in (False, True)]
    low, high = (hypot(*(max(0.0, sign * each) for each in moved)) for sign in (-1.0, 1.0))
    return exp(usual - low), exp(usual + high)


def _slowest(call: ScheduledCall) -> ScheduledCall:
    modes = (replace(mode, latency_s=max(mode.high_s, mode.latency_s)) for mode in call.modes)
    return replace(call, modes=tuple(modes))
