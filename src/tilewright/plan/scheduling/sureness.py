"""Whether a schedule gains surely over one call after the other, before anybody runs it.

promised 1.02× from calls in their places    one call after the other is kept: such promises
                                             were up to 1.09 times what runs gave
promised 1.30×                               the schedule is kept
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.schedules import MergingGain
from tilewright.plan.scheduling.alternatives import AsRun
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.planners.sequential import Sequential, on_one_device
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.robust import survival
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.scheduling.simulator import simulate

LEAST = 1.001
"""A gain below this is none, as for `auto` itself."""
IN_PLACE = 1.09
"""How many times what runs gave a promise from calls in their places was at most (googlenet: 1.04
and 0.96, towers: 1.02 and 0.94; docs/benchmarks-cores.md#two-lanes-of-one-core)."""
PREDICTED = 1.22
"""The most that predicted times promised where runs gained nothing (inception_v3, there)."""


def surely_in_parts(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """As `surely`, of what is carried out in parts: of several networks, or over several devices.
    What is kept is one call after the other, all on the device that is fastest alone, on all of its
    cores, as far as that breaks no limit. `PREDICTED` and `IN_PLACE` are of one network on two
    cores; that they hold here, too, is not known (see decision 0124).
    """
    whole = (each for each in on_one_device(problem) if _keeps_limits(problem, each[1]))
    device, alone = min(whole, key=lambda each: each[1].latency_s, default=("", None))
    doubt = alone and _doubt(problem, schedule, alone, simulate)
    if not alone or not doubt:
        return schedule
    return _kept(schedule, alone, f"all calls one after the other on {device!r}, because {doubt}")


def surely(problem: SchedulingProblem, schedule: Schedule, as_run: AsRun) -> Schedule:
    """The schedule, one of the least latency as it is run; or one call after the other as that is
    run, with the reason in its note, where it is not sure that the schedule gains over that. With
    times that are exact it is sure where the gain is above 1 by the intervals, above `IN_PLACE`,
    and above 1 still where each hand-off takes twice as long. Intervals of predicted times are so
    wide that hardly any gain would be sure; there a gain above `PREDICTED` suffices, too. One call
    after the other is not kept where it breaks a limit."""
    try:
        alone = as_run(problem, Sequential().schedule(problem, 0.0))
    except NothingFound:
        return schedule
    doubt = _doubt(problem, schedule, alone, as_run)
    if not doubt or not _keeps_limits(problem, alone):
        return schedule
    return _kept(schedule, alone, f"one call after the other, because {doubt}")


def merging_gain(
    merged: tuple[SchedulingProblem, Schedule],
    apart: tuple[SchedulingProblem, Schedule],
    as_run: AsRun | None = None,
) -> MergingGain:
    """What merging calls gains in latency by a plan with them, over one with all calls apart, each
    with its problem and as it is run; and why that is not sure, by the rule of `surely`."""
    left = survival(*merged, apart[1], apart[0])
    return MergingGain(
        gain=left.expected,
        gain_low=left.low,
        gain_high=left.high,
        doubt=_doubt(*merged, apart[1], as_run or simulate, apart=apart[0]),
    )


def _keeps_limits(problem: SchedulingProblem, schedule: Schedule) -> bool:
    return next(faults(problem, schedule), None) is None


def _kept(schedule: Schedule, alone: Schedule, why: str) -> Schedule:
    """What is kept instead of a schedule, with what is told of it."""
    return replace(
        alone,
        planner=Sequential().name,
        bound=min(schedule.bound, alone.objective),
        solve_s=schedule.solve_s,
        note=f"auto keeps {why}",
    )


def _doubt(
    problem: SchedulingProblem,
    schedule: Schedule,
    alone: Schedule,
    as_run: AsRun,
    *,
    apart: SchedulingProblem | None = None,
) -> str:
    """Why it is not sure that a schedule gains; empty where it is, or where it is the same. With
    `apart`, the problem of `alone`, the gain is that of merging calls."""
    if schedule.slots == alone.slots:
        return ""
    who, without = ("merging", apart) if apart is not None else (schedule.planner, problem)
    left = survival(problem, schedule, alone, apart)
    gain = left.expected if left.beside is None else min(left.expected, left.beside)
    if gain < LEAST:
        if left.expected >= LEAST:
            return f"calls slow each other down by as much as {who} gains"
        if apart is not None:
            return f"merging promises {left.expected:.2f}×, which is no gain"
        return "nothing that was found is a thousandth faster"
    told = f"{who} promises {gain:.2f}×"
    both = (without, alone), (problem, schedule)
    used = (each.mode_of(own, slot.call) for own, each in both for slot in each.slots)
    if any(mode.source != "exact" for mode in used):
        if gain > PREDICTED or left.low > 1.0:
            return ""
        return (
            f"{told} by predicted times, {left.low:.2f}× to {left.high:.2f}× by their intervals, "
            f"and on two cores up to {PREDICTED:.2f}× was promised so where runs gained nothing"
        )
    if left.low <= 1.0:
        return f"{told}, and by the intervals of its times {left.low:.2f}× to {left.high:.2f}×"
    if gain <= IN_PLACE:
        return f"{told}, and such promises were up to {IN_PLACE:.2f} times what runs gave"
    twice = (
        as_run(replace(own, handoff_s=2 * own.handoff_s), each).latency_s for own, each in both
    )
    if next(twice) <= next(twice):
        return f"{told}, and nothing is left of it where hand-offs take twice as long"
    return ""
