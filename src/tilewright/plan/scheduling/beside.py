"""What becomes of a schedule where calls that run at a time slow each other down.

planned    a on 0   0 to 5        beside    a on 0   0 to 5.6
           b on 1   0 to 5                  b on 1   0 to 5.6
           c on 0, 1   5 to 7               c on 0, 1   5.6 to 7.6
"""

from __future__ import annotations

from tilewright.cost.contention import slowdown
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.simulator import Slowdown, simulate


def slowdown_of(problem: SchedulingProblem, schedule: Schedule) -> Slowdown | None:
    """How many times as long calls of a schedule take beside others on their device; None where no
    device says how they slow each other down."""
    if all(device.contention_bytes_per_s is None for device in problem.devices):
        return None
    modes = {call.name: schedule.mode_of(problem, call.name) for call in problem.calls}

    def of(call: str, others: frozenset[str]) -> float:
        scale = problem.device[modes[call].device].contention_bytes_per_s
        if scale is None or not others:
            return 1.0
        moved = sum(modes[other].bytes_per_s for other in sorted(others))
        return float(slowdown(modes[call].bytes_per_s, moved, scale))

    return of


def beside_each_other(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """The schedule with the times that its calls take beside each other; the schedule itself where
    nothing is known of that."""
    slower = slowdown_of(problem, schedule)
    return schedule if slower is None else simulate(problem, schedule, slowdown=slower)
