"""Versions of a task's kernel that a planner may choose from, and what they are called in a plan.

    conv1   on 2 cores   winograd   40 µs   2.4 MB       the fastest alone
                         direct     46 µs   0.9 MB       moves less from memory
            on 1 core    winograd   78 µs   2.4 MB
                         winograd #2  70 µs  2.4 MB      other settings, faster on one core as far
                                                         as is predicted (`predicted_versions`)

Of versions on as many cores those stay that no other one beats in both, time alone and moved bytes;
the bytes of one that was tuned beside a partner follow from what it lost there (`beside_versions`).
Bytes by themselves, not by the second: a kernel that moves as much in more time takes as much from
its neighbours in all (see `cost.contention`), and is longer in their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.planning import PlanningCall, PlanningData, PlanningMode
from tilewright.plan.scheduling.pareto import undominated
from tilewright.plan.scheduling.plan_file import PlannedKernel
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule

MOST = 3
"""On each number of cores, and one more that was tuned beside a partner."""
_MEASURED = ("exact", "interpolated")


def worth_choosing(modes: Sequence[PlanningMode]) -> list[PlanningMode]:
    """Of ways to compute a call on as many cores of a device, the usual one first, at most three
    that are worth choosing from, the fastest first: that one and what no other beats in time and
    moved bytes. One that was measured nowhere is none where it is said to be faster than the usual
    one, and that was measured on as many cores and chosen for its time. One that was tuned beside a
    partner, whose bytes were measured there, stays beside these."""
    usual = modes[0]
    timed = usual.source == "exact"
    believed = [
        m for m in modes if not timed or m.source in _MEASURED or m.latency_s > usual.latency_s
    ]
    others = [mode for mode in believed if mode is not usual]
    best = undominated([usual, *others], lambda mode: (mode.latency_s, mode.moved_bytes))
    rest = sorted((mode for mode in best if mode is not usual), key=lambda m: m.latency_s)
    ends = [*rest[: MOST - 2], *rest[-1:]] if len(rest) >= MOST else rest
    tuned = [mode for mode in rest if mode.moved_is == "measured" and mode not in ends]
    return sorted([usual, *ends, *tuned], key=lambda mode: mode.latency_s)


def kernel_names(call: PlanningCall) -> list[str]:
    """What the kernel of each of a call's modes is called: as its implementation, with a number
    from the second settings on, so that equal names are equal kernels."""
    known: dict[str, list[Mapping[str, object]]] = {}
    names: list[str] = []
    for mode in reversed(call.modes):
        settings = known.setdefault(mode.implementation, [])
        if mode.settings not in settings:
            settings.append(mode.settings)
        number = settings.index(mode.settings) + 1
        names.append(f"{mode.implementation} #{number}" if number > 1 else mode.implementation)
    return names[::-1]


def chosen_kernels(
    data: PlanningData, prefix: str, problem: SchedulingProblem, schedule: Schedule
) -> dict[str, PlannedKernel]:
    """The kernels that a schedule chose for a network's calls, by their own names; those of the
    problem begin with `prefix`."""
    found: dict[str, PlannedKernel] = {}
    for call in data.calls:
        if (name := prefix + call.name) in problem.numbers:
            chosen = schedule.mode_of(problem, name)
            there = zip(kernel_names(call), call.modes, strict=True)
            mode = next(m for kernel, m in there if kernel == chosen.kernel)
            if mode.forms:  # else it is computed in place
                found[call.name] = PlannedKernel(mode.implementation, mode.settings)
    return found
