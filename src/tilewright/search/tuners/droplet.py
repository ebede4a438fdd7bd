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
from tilewright.search.tuners.base import NumberTuner, TuningTask

_WIDEST = 3
_DRAWN = 2000
"""Settings of a large space among which the best estimate is sought."""
_STARTS = 8
_SIGNIFICANT = 0.95


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
        """Keep the samples of each setting's best time too: a step must be significantly faster."""
        for outcome in outcomes:
            number = self.space.number(outcome.candidate)
            if number is not None and isinstance(outcome, Measurement):
                best_s = self.known.seconds.get(number, inf)
                if outcome.latency_s < best_s:
                    self._samples[number] = outcome.samples_s
            super().tell([outcome])

    def propose(self, count: int) -> list[int]:
        """Settings around the centre, or new starts."""
        self._move()
        if self._centre is None and not self._starts:
            return self._started(self._first(), count)
        around = self._around(self._starts[0] if self._centre is None else self._centre)
        if self._joint is not None:
            around = self.known.fresh([self._joint, *around])
        if around:
            return [*around, *self.unseen(count)] if len(around) < count else around[:count]
        self._before = frozenset(self.known.seconds)
        self._centre = None
        return self._started(self.unseen(_STARTS), count)

    def _started(self, starts: list[int], count: int) -> list[int]:
        """New starting points, and what lies around the first of them while they are measured."""
        self._starts, self._direction, self._joint = starts, None, None
        around = self._around(starts[0]) if starts else []
        return [*starts, *around, *self.unseen(count)][: count + len(starts)]

    def _first(self) -> list[int]:
        """The best estimate, random settings where there is none."""
        if self.known.seconds:
            return []
        fresh = self.known.fresh(self.space.all_or_sample(self.rng, _DRAWN).tolist())
        estimates = self.space.estimates_s(fresh) if fresh else None
        return self.unseen(_STARTS) if estimates is None else [fresh[int(np.argmin(estimates))]]

    def _move(self) -> None:
        """Make the fastest setting of this descent the centre if it is significantly faster."""
        best = next((n for n in self.known.fastest() if n not in self._before), None)
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
        seconds, near = self.known.seconds, self.space.neighbours(centre)
        faster = [n for n in near if seconds.get(n, inf) < seconds[centre]]
        if len(faster) < 2:
            return None
        faster.sort(key=lambda number: seconds[number])
        steps = self.space.digits(faster) != self.space.digits([centre])
        best: dict[int, int] = {}
        for number, column in zip(faster, steps.argmax(axis=1), strict=True):
            best.setdefault(int(column), number)
        # numbers are in mixed radix, so changes of different knobs add up
        joint = centre + sum(number - centre for number in best.values())
        return joint if self.space.valid(joint) else None

    def _around(self, centre: int) -> list[int]:
        """Unseen settings on one axis through the centre, the nearest ring first."""
        near = self.known.fresh(self.space.neighbours(centre))
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
    from scipy.special import stdtrit

    gain = fmean(old) - fmean(new)
    if len(new) < 2 or len(old) < 2:
        return gain > 0
    a, b = variance(new) / len(new), variance(old) / len(old)
    if a + b == 0:
        return gain > 0
    freedom = (a + b) ** 2 / (a**2 / (len(new) - 1) + b**2 / (len(old) - 1))
    return gain / sqrt(a + b) > float(stdtrit(freedom, _SIGNIFICANT))
