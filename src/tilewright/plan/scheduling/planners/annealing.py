"""A schedule made better by chance: simulated annealing over the order of calls and their modes.

    order a, b, c; modes 2, 1, 1 cores     10 µs
    c before b                             10 µs, kept
    b on 2 cores                           11 µs, kept early on, not later

A step moves a call in the order, between what it waits for and what waits for it, or changes its
mode; each is tried as the list of that order (`line_up`), some tens of microseconds. It is taken
where it ends no later than now, or by little more with a chance that falls to nothing with time
(S. Kirkpatrick, C. Gelatt and M. Vecchi, Science 220, 1983). Memory, power and bandwidth are not
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tilewright.plan.scheduling.planners.line_up import LineUp
from tilewright.plan.scheduling.problem import SchedulingProblem

_WARMTH = 0.003
"""How much longer a step may take at first in the mean, as a share: of 0, 0.003, 0.006, 0.012 and
0.025 what found most in blocks of 40 and 60 calls."""
_MOVES = 0.5
"""How often a call goes elsewhere in the order; half of these also change their mode."""
_TOGETHER = 0.3
"""How often a call that changes its mode takes one that waits for it along."""
_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An order, a mode for each call, and when the last call of that list ends."""

    order: list[int]
    modes: list[int]
    latency_s: float


def annealed(
    problem: SchedulingProblem,
    order: Sequence[int],
    modes: Sequence[int],
    passed: Callable[[], float],
    seed: int = 1,
) -> Found:
    """The best list that was come by, from one whose order keeps every wait. `passed` says which
    part of the time is over, 1 or more at the end."""
    walk = _Walk(problem, order, modes, Random(seed))
    best = walk.now
    while (over := passed()) < 1.0:
        walk.step(_WARMTH * (1.0 - over))
        if walk.now.latency_s < best.latency_s:
            best = walk.now
    return best


class _Walk:
    """The list that is taken now."""

    def __init__(
        self,
        problem: SchedulingProblem,
        order: Sequence[int],
        modes: Sequence[int],
        random: Random,
    ) -> None:
        self._random, self._queue = random, LineUp(problem, order)
        self._choices = [len(call.modes) for call in problem.calls]
        latency_s = self._queue.latency_s(modes)
        self.now = Found(order=list(order), modes=list(modes), latency_s=latency_s)

    def step(self, warmth: float) -> None:
        """Try a change, and take it unless it is too late."""
        order, modes = self._changed()
        limit_s = self.now.latency_s * (1 + _SAME)
        self._try(order, modes, limit_s * (1 + warmth * self._random.expovariate(1.0)))

    def _changed(self) -> tuple[list[int], list[int]]:
        """The order and the modes with a change."""
        random, queue, now = self._random, self._queue, self.now
        number, order, modes = random.randrange(len(now.modes)), now.order, list(now.modes)
        if random.random() < _MOVES:
            order = self._moved(number)
            if random.random() < 0.5:
                modes[number] = random.randrange(self._choices[number])
        else:
            modes[number] = random.randrange(self._choices[number])
            if queue.after[number] and random.random() < _TOGETHER:
                other = random.choice(queue.after[number])
                modes[other] = min(modes[number], self._choices[other] - 1)
        return order, modes

    def _try(self, order: list[int], modes: list[int], limit_s: float) -> None:
        """Take this list where it ends before `limit_s`."""
        queue = self._queue
        queue.order = order
        latency_s = queue.latency_s(modes, limit_s)
        if latency_s < limit_s:
            places = {number: place for place, number in enumerate(order)}
            order = sorted(order, key=lambda each: (queue.begins_s[each], places[each]))
            self.now = Found(order=order, modes=modes, latency_s=latency_s)

    def _moved(self, number: int) -> list[int]:
        """The order with a call elsewhere, if there is another place for it."""
        order = list(self.now.order)
        places = {each: place for place, each in enumerate(order)}
        queue = self._queue
        least = max((places[each] + 1 for each in queue.before[number]), default=0)
        most = min((places[each] - 1 for each in queue.after[number]), default=len(order) - 1)
        if most > least:
            order.pop(places[number])
            order.insert(self._random.randint(least, most), number)
        return order
