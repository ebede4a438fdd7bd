"""A schedule that draws less, by chance: annealing over the order of calls and their modes.

    order a, b, c; modes card, 8 cores, 8 cores      10 µs   50 mJ
    b and c, which is next, on 4 cores each          10 µs   47 mJ
    b at the slower clock of the card                11 µs   45 mJ, too late

A step changes the mode of a call, and has one of the next calls in the order take the same device
and cores, or moves a call to another place of the order; two calls that run one after the other on
all cores come to run beside each other that way. It is taken where all calls end in time and no
more energy is drawn, or little more with a chance that falls to nothing with time, as in
`annealing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random

from tilewright.plan.scheduling.planners.annealing import Found
from tilewright.plan.scheduling.planners.changing_list import ChangingList
from tilewright.plan.scheduling.problem import SchedulingProblem

_WARMTH = 0.3
"""How much more energy a step may take at first in the mean, as a share of what a call draws in the
mean."""
_MOVES = 0.25
"""How often a call goes elsewhere in the order."""
_NEXT = 3
"""One of how many calls after it changes its mode with a call."""
_KEPT = 8


def thriftier_lists(
    problem: SchedulingProblem,
    order: Sequence[int],
    modes: Sequence[int],
    within_s: float,
    passed: Callable[[], float],
    seed: int = 1,
) -> list[Found]:
    """Lists that end before `within_s`, those with the least energy that were come by, the least
    first, from one whose order keeps every wait; the first one is the last of a few. `passed` says
    which part of the time is over, 1 or more at the end."""
    walk = _Walk(problem, order, modes, Random(seed))
    found, least_j = [walk.found()], walk.drawn_j if walk.latency_s < within_s else inf
    while (over := passed()) < 1.0:
        if walk.step(within_s, 1.0 - over) and walk.drawn_j < least_j:
            least_j = walk.drawn_j
            found.append(walk.found())
    return found[: -_KEPT - 1 : -1]


class _Walk:
    """The list that is taken now, and what it draws, in joules."""

    def __init__(
        self,
        problem: SchedulingProblem,
        order: Sequence[int],
        modes: Sequence[int],
        random: Random,
    ) -> None:
        self._random, self._list = random, ChangingList(problem, order, modes)
        self._idle_w = sum(device.idle_w or 0.0 for device in problem.devices)
        self._joules = [[mode.energy_j or 0.0 for mode in call.modes] for call in problem.calls]
        self._cores = [[(mode.device, mode.cores) for mode in call.modes] for call in problem.calls]
        self._calls_j = self._drawn_j(self._list.modes)
        self._warm_j = _WARMTH * self._calls_j / len(modes)

    @property
    def latency_s(self) -> float:
        """When the last call ends."""
        return self._list.latency_s

    @property
    def drawn_j(self) -> float:
        """What all calls draw, and the devices when idle."""
        return self._calls_j + (self._idle_w * self.latency_s if self._idle_w else 0.0)

    def found(self) -> Found:
        """The list, which goes on to change."""
        now = self._list
        return Found(order=now.order.copy(), modes=now.modes.copy(), latency_s=now.latency_s)

    def step(self, within_s: float, warmth: float) -> bool:
        """Try a change, and take it where it ends in time and does not draw too much."""
        modes, moved = self._changed()
        if not modes and moved is None:
            return False
        now = self._list.modes
        more_j = sum(
            [
                self._joules[each][place] - self._joules[each][now[each]]
                for each, place in modes.items()
            ]
        )
        spare_j = self._warm_j * warmth * self._random.expovariate(1.0)
        if self._idle_w:
            spare_j += self._idle_w * min(self.latency_s, within_s)
            within_s = min(within_s, (spare_j - more_j) / self._idle_w)
        if more_j > spare_j or not self._list.takes(modes, within_s, moved):
            return False
        self._calls_j = self._drawn_j(now)
        return True

    def _drawn_j(self, modes: Sequence[int]) -> float:
        return sum([own[place] for own, place in zip(self._joules, modes, strict=True)])

    def _changed(self) -> tuple[dict[int, int], tuple[int, int] | None]:
        """The modes that change, and the call that goes to another place of the order, if any."""
        random, now = self._random, self._list
        number = random.randrange(len(now.modes))
        changed = {number: random.randrange(len(self._joules[number]))}
        moved = None
        if random.random() < _MOVES:
            least = max([now.places[each] + 1 for each in now.before[number]], default=0)
            after = [now.places[each] - 1 for each in now.after[number]]
            place = random.randint(least, min(after, default=len(now.order) - 1))
            if place != now.places[number]:
                moved = number, place
        else:
            place = now.places[number] + random.randint(1, _NEXT)
            if place < len(now.order):
                other, wanted = now.order[place], self._cores[number][changed[number]]
                alike = [at for at, own in enumerate(self._cores[other]) if own == wanted]
                if alike:
                    changed[other] = random.choice(alike)
        return {each: at for each, at in changed.items() if now.modes[each] != at}, moved
