"""Annealing as in `annealing`, compiled, for calls that all run on one device (`ListWalk`).

    squeezenet1_1 beside googlenet, 59 calls, 4 cores    some 200,000 steps in a second

Memory, power and bandwidth are not looked at, so that what is found has to be placed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from tilewright.plan.scheduling.planners.annealing import Found
from tilewright.plan.scheduling.precedence import waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem

_WARMTHS = (0.006, 0.002, 0.012, 0.003)
"""How much longer a step may take at first in the mean, as a share, in rounds by turns."""
_ROUNDS = 4
_EACH_S = 2e-3
"""Between two looks at the clock."""
_MOST_CORES = 62
"""As many as `ListWalk` takes, to which they are the bits of a number."""


def on_one_device(problem: SchedulingProblem) -> bool:
    """Whether all modes of all calls are on one device, whose cores are several and not too many
    for compiled steps."""
    names = {mode.device for call in problem.calls for mode in call.modes}
    return len(names) == 1 and 1 < problem.device[min(names)].cores <= _MOST_CORES


def walked(
    problem: SchedulingProblem,
    order: Sequence[int],
    modes: Sequence[int],
    until: float,
    enough_s: float = 0.0,
    seed: int = 1,
) -> Found:
    """The best list that was come by until then, by the clock of `perf_counter`, or as soon as it
    ends within `enough_s`; from one whose order keeps every wait. All modes are `on_one_device`."""
    from tilewright.compiler.list_walk import ListCalls, ListWalk

    calls = ListCalls(
        cores=[[mode.cores for mode in call.modes] for call in problem.calls],
        seconds=[[mode.latency_s for mode in call.modes] for call in problem.calls],
        before=waits_of(problem),
        device_cores=problem.device[problem.calls[0].modes[0].device].cores,
        handoff_s=problem.handoff_s,
    )
    walk = ListWalk(calls, order, modes, seed)
    walk.step(1, 0.0)
    begin, count = perf_counter(), 1
    while (now := perf_counter()) < until and walk.latency_s > enough_s:
        over = _ROUNDS * (now - begin) / (until - begin)
        walk.step(count, _WARMTHS[int(over) % len(_WARMTHS)] * (1.0 - over % 1.0))
        lasted_s = perf_counter() - now
        count = max(1, min(2 * count, round(count * _EACH_S / max(lasted_s, 1e-9))))
    best_order, best_modes = walk.best
    return Found(order=best_order, modes=best_modes, latency_s=walk.latency_s)
