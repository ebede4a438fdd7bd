"""Annealing as in `annealing`, compiled, for calls that all run on one device (`ListWalk`), on each
core of this machine from other random numbers.

    squeezenet1_1 beside googlenet, 59 calls, 4 cores    some 450,000 steps in a second and core

The end of a list tells little of what is wrong with it: two calls one after the other on all cores,
or beside each other on half of them, mostly change it by nothing. So what counts are at first the
seconds of all cores that calls hold as well. Memory, power and bandwidth are not looked at, so that
what is found may break such limits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

from tilewright.hardware.probe import default_threads
from tilewright.plan.scheduling.measures import judged
from tilewright.plan.scheduling.precedence import waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot

if TYPE_CHECKING:
    from tilewright.compiler.list_walk import ListWalk

_WARMTH, _COOLED = 0.6, 0.01
"""How much longer a step may take at first in the mean, as a share that one call has of all; and
what is left of that at the end of a round."""
_WEIGHTS = 1.5, 0.5
"""What the seconds of all cores count beside the end, at the begin and at the end of a round."""
_ROUND = 4000
"""Steps of a round for each call, where there is the time for them."""
_FRUITLESS = 6
"""So many rounds in turn that find nothing better are the last ones."""
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
    start: Schedule,
    until: float,
    enough_s: float = 0.0,
    *,
    seed: int = 1,
    cooled: float = 0.0,
) -> Schedule:
    """The best schedule that was come by until then, by the clock of `perf_counter`, or as soon as
    one ends within `enough_s`; from the calls of one in their order. All modes are
    `on_one_device`. Rounds leave out a part that is `cooled` of them, which stays close to where
    they begin."""
    from tilewright.compiler.list_walk import ListCalls, ListWalk

    calls = ListCalls(
        cores=[[mode.cores for mode in call.modes] for call in problem.calls],
        seconds=[[mode.latency_s for mode in call.modes] for call in problem.calls],
        before=waits_of(problem),
        device_cores=problem.device[problem.calls[0].modes[0].device].cores,
        handoff_s=problem.handoff_s,
    )
    order = [problem.numbers[slot.call] for slot in start.slots]
    modes = [start.slot[call.name].mode for call in problem.calls]
    walks = [ListWalk(calls, order, modes, seed + number) for number in range(default_threads())]
    for walk in walks:
        walk.step(1, 0.0)
    fruitless, least_s, stopped = 0, walks[0].latency_s, Event()
    one = partial(_round, calls=len(order), until=until, over=cooled, stopped=stopped)
    with ThreadPoolExecutor(len(walks)) as pool:
        try:
            while fruitless < _FRUITLESS and perf_counter() < until and least_s > enough_s:
                now_s = min(pool.map(one, walks))
                fruitless = 0 if now_s < least_s else fruitless + 1
                least_s = min(least_s, now_s)
        finally:  # an interrupt does not wait for the end of a round
            stopped.set()
    best = min(walks, key=lambda walk: walk.latency_s).best
    slots: list[Slot] = []
    for number, mode, begin_s, cores in best:
        call = problem.calls[number]
        end_s = begin_s + call.modes[mode].latency_s
        slots.append(Slot(call=call.name, mode=mode, begin_s=begin_s, end_s=end_s, cores=cores))
    slots.sort(key=lambda slot: (slot.begin_s, slot.end_s))
    return judged(problem, replace(start, slots=tuple(slots), transfers=()))


def _round(walk: ListWalk, *, calls: int, until: float, over: float, stopped: Event) -> float:
    """Steps from warm to cold, from a part of them on, or as many as there is time for; when the
    best list ends. Nothing more once it is stopped."""
    count, steps, begin, skipped = 1, 0, perf_counter(), over
    while over < 1.0 and not stopped.is_set():
        weight = _WEIGHTS[0] + (_WEIGHTS[1] - _WEIGHTS[0]) * over
        since = perf_counter()
        walk.step(count, _WARMTH / calls * _COOLED**over, weight)
        now, steps = perf_counter(), steps + count
        count = max(1, min(2 * count, round(count * _EACH_S / max(now - since, 1e-9))))
        passed = max(steps / (_ROUND * calls), (now - begin) / max(until - begin, 1e-9))
        over = skipped + passed
    return walk.latency_s
