"""Coordinate descent: from a good setting, one knob at a time, downhill.

Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling", TACO 2024 (arXiv 2406.20037).
It starts from the best known setting, else from the best estimate, else from the best of a few
random settings. All values one step away are tried, then those two and three steps away; as soon as
one is significantly faster it becomes the new centre. The same direction is tried first, and before
it all that was faster around the old centre in one setting. Where nothing near is faster the
descent is over; asked for more, it starts anew from random settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, variance

import numpy as np

from tilewright.core.records import Measurement, Outcome
from tilewright.kernels.search_space import Numbers
from tilewright.search.tuners.base import NumberTuner, TunerFactory, TuningTask

_WIDEST = 3
_DRAWN = 2000
"""Settings of a large space among which the best estimate is sought."""
_STARTS = 8
_CRITICAL = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
"""Student's t for one side and 5 %, one to ten degrees of freedom."""
_CRITICAL_BEYOND = 1.7


class DropletTuner(NumberTuner):
    """See the module's docstring."""

    def __init__(self, task: TuningTask) -> None:
        super().__init__(task)
        self._samples: dict[int, tuple[float, ...]] = {}
        self._centre: int | None = None
        self._starts: list[int] = []
        self._before: frozenset[int] = frozenset()
        self._direction: Numbers | None = None
        self._joint: int | None = None

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the samples too: a step must be significantly faster."""
        before = dict(self.known.seconds)
        super().tell(outcomes)
        for outcome in outcomes:
            number = self.space.number(outcome.candidate)
            if number is not None and isinstance(outcome, Measurement):
                if outcome.latency_s < before.get(number, inf):
                    self._samples[number] = outcome.samples_s
                before[number] = min(outcome.latency_s, before.get(number, inf))

    def propose(self, count: int) -> list[int]:
        """Settings around the centre, or new starts."""
        self._move()
        if self._centre is None and not self._starts:
            return self._started(self._first(), count)
        centre = self._centre if self._centre is not None else self._starts[0]
        around = self._around(centre)
        if self._joint is not None and self._joint not in self.known.seen:
            around = [self._joint, *(n for n in around if n != self._joint)]
        if around:
            return [*around, *self.unseen(count)] if len(around) < count else around[:count]
        self._before = frozenset(self.known.seconds)
        self._centre = None
        return self._started(self.unseen(_STARTS), count)

    def _started(self, starts: list[int], count: int) -> list[int]:
        """New starting points, and what lies around the first of them while they are measured."""
        self._starts, self._direction, self._joint = starts, None, None
        around = [n for start in starts[:1] for n in self._around(start)]
        return [*starts, *around, *self.unseen(count)][: count + len(starts)]

    def _first(self) -> list[int]:
        """The best estimate, a random setting where there is none."""
        if self.known.seconds:
            return []
        drawn = self.space.listed
        pool = self.space.sample(self.rng, _DRAWN) if drawn is None else drawn.tolist()
        fresh = [number for number in pool if number not in self.known.seen]
        estimates = self.space.estimates_s(fresh) if fresh else None
        if estimates is None:
            return self.unseen(_STARTS)
        return [fresh[int(np.argmin(estimates))]]

    def _move(self) -> None:
        """Make the fastest setting of this descent the centre if it is significantly faster."""
        mine = {n: s for n, s in self.known.seconds.items() if n not in self._before}
        best = min(mine, key=lambda number: mine[number], default=None)
        if best is None or best == self._centre:
            return
        if self._centre is None:
            self._centre, self._starts = best, []
        elif _faster(self._samples[best], self._samples[self._centre]):
            old, new = self.space.digits([self._centre, best])
            self._direction = np.sign(new - old) if new[0] == old[0] else None
            self._joint = self._joined(self._centre)
            self._centre = best

    def _joined(self, centre: int) -> int | None:
        """The centre with every knob at the fastest value tried around it, if that is valid."""
        near = sorted(
            (n for n in self.space.neighbours(centre) if n in self.known.seconds),
            key=lambda number: self.known.seconds[number],
        )
        faster = [n for n in near if self.known.seconds[n] < self.known.seconds[centre]]
        if len(faster) < 2:
            return None
        steps = self.space.digits(faster) != self.space.digits([centre])
        best: dict[int, int] = {}
        for number, column in zip(faster, steps.argmax(axis=1), strict=True):
            best.setdefault(int(column), number)
        # numbers are in mixed radix, so changes of different knobs add up
        joint = centre + sum(number - centre for number in best.values())
        return joint if self.space.valid(joint) else None

    def _around(self, centre: int) -> list[int]:
        """Unseen settings on one axis through the centre, the nearest ring first."""
        near = [n for n in self.space.neighbours(centre) if n not in self.known.seen]
        if not near:
            return []
        steps = self.space.digits(near) - self.space.digits([centre])
        ordered = np.array([True, *(k.kind == "split" or k.numeric for k in self.space.knobs)])
        rings = np.where(ordered, np.abs(steps), steps != 0).max(axis=1)
        onward = np.zeros(len(near))
        if self._direction is not None:
            onward = -((np.sign(steps) == self._direction) & (steps != 0)).any(axis=1).astype(float)
        estimates = self.space.estimates_s(near)
        tie = self.rng.random(len(near)) if estimates is None else estimates
        order = np.lexsort((tie, onward, rings))
        return [near[int(row)] for row in order if rings[row] <= _WIDEST]


def _faster(new: Sequence[float], old: Sequence[float]) -> bool:
    """Welch's t-test on samples, one side, 5 %; single samples are just compared."""
    gain = fmean(old) - fmean(new)
    if len(new) < 2 or len(old) < 2:
        return gain > 0
    a, b = variance(new) / len(new), variance(old) / len(old)
    if a + b == 0:
        return gain > 0
    freedom = (a + b) ** 2 / (a**2 / (len(new) - 1) + b**2 / (len(old) - 1))
    row = int(freedom) - 1
    critical = _CRITICAL[max(0, row)] if row < len(_CRITICAL) else _CRITICAL_BEYOND
    return gain / sqrt(a + b) > critical


TUNERS: dict[str, TunerFactory] = {"droplet": DropletTuner}
