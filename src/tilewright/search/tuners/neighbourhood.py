"""Best guesses first, then the neighbours of what turned out best.

The implementations' estimates rank all settings. The first proposals are the best-ranked ones, kept
apart from each other; afterwards most of each batch are one-knob neighbours of the best measured
settings, the rest continues down the ranking, corrected by how far estimates were off nearby.
Without estimates the ranking is random. Large spaces are ranked by a sample.
"""

from __future__ import annotations

import numpy as np

from tilewright.kernels.search_space import Floats, Numbers
from tilewright.search.tuners.base import NumberTuner, TunerFactory, TuningTask

_LEADERS = 3
_FIRST = 8
_POOL = 4096
_CORRECTING = 256
"""The estimates are corrected by so many measurements at most, the latest ones."""
_APART = 1000
"""Added to the code of the implementation, so that another one is no neighbour."""


class NeighbourhoodTuner(NumberTuner):
    """See the module's docstring."""

    def __init__(self, task: TuningTask) -> None:
        super().__init__(task)
        self._pool: Numbers | None = None
        self._estimates: Floats | None = None
        self._codes: Numbers = np.empty((0, 1), dtype=np.int64)

    def propose(self, count: int) -> list[int]:
        """Mixed proposals; see the module's docstring."""
        chosen: list[int] = []
        if len(self.known.seconds) >= _FIRST:
            chosen += self._neighbours(count - count // 3)
        chosen += self._ranked(count - len(chosen), {*chosen})
        return chosen or self.unseen(count)

    def _settle(self) -> Numbers:
        """The settings that are ranked: all, or a sample of a large space, drawn once."""
        if self._pool is None:
            listed = self.space.listed
            drawn = self.space.sample(self.rng, _POOL) if listed is None else listed
            pool = np.array(drawn, dtype=np.int64)
            estimates = self.space.estimates_s(pool) if len(pool) else None
            if estimates is None:
                pool = self.rng.permutation(pool)
            self._pool, self._estimates, self._codes = pool, estimates, self._coded(pool)
        return self._pool

    def _coded(self, numbers: Numbers) -> Numbers:
        codes = self.space.digits(numbers)
        codes[:, 0] *= _APART
        return codes

    def _neighbours(self, count: int) -> list[int]:
        """Unseen settings that differ from a leader in one knob, nearest values first."""
        leaders = sorted(self.known.seconds, key=lambda n: self.known.seconds[n])[:_LEADERS]
        chosen: list[int] = []
        for leader in leaders:
            near = [n for n in self.space.neighbours(leader) if n not in self.known.seen]
            near = [n for n in near if n not in chosen]
            if not near:
                continue
            steps = np.abs(self._coded(np.array(near)) - self._coded(np.array([leader])))
            estimates = self.space.estimates_s(near)
            tie = self.rng.random(len(near)) if estimates is None else estimates
            order = np.lexsort((tie, steps.sum(axis=1)))
            chosen += [near[int(row)] for row in order[: max(1, count // 2)]]
        return chosen[:count]

    def _ranked(self, count: int, taken: set[int]) -> list[int]:
        """The best unseen settings by corrected estimate, kept apart from each other."""
        pool = self._settle()
        ranking = np.arange(len(pool))
        if self._estimates is not None:
            ranking = np.argsort(self._estimates * self._correction(self._estimates), kind="stable")
        free: list[int] = []
        for row in ranking:
            number = int(pool[row])
            if number not in self.known.seen and number not in taken:
                free.append(int(row))
                if len(free) == 4 * count:
                    break
        if len(free) > count:
            free = self._spread(free, count)
        return [int(pool[row]) for row in free]

    def _spread(self, rows: list[int], count: int) -> list[int]:
        """Some of the best-ranked, far apart; two ranks are worth one knob."""
        handicap = np.arange(len(rows)) / 2
        distances = np.full(len(rows), 9.0)
        chosen: list[int] = []
        for _ in range(count):
            best = int(np.argmax(np.where(handicap < np.inf, 2 * distances - handicap, -np.inf)))
            chosen.append(rows[best])
            handicap[best] = np.inf
            apart = (self._codes[rows] != self._codes[rows[best]]).sum(axis=1)
            distances = np.minimum(distances, apart) if len(chosen) > 1 else apart.astype(float)
        return chosen

    def _correction(self, estimates: Floats) -> Floats:
        """measured / estimated of the nearest measured settings, one factor per setting."""
        numbers, seconds = self.known.arrays()
        numbers, seconds = numbers[-_CORRECTING:], seconds[-_CORRECTING:]
        guessed = self.space.estimates_s(numbers) if len(numbers) >= 4 else None
        if guessed is None:
            return np.ones(len(estimates))
        ratios = np.log(seconds / guessed)
        codes = self._coded(numbers)
        apart = np.zeros((len(estimates), len(numbers)), dtype=np.int8)
        for column in range(codes.shape[1]):
            apart += self._codes[:, None, column] != codes[None, :, column]
        weights = 4.0 ** -apart.astype(np.float64)
        return np.exp((weights @ ratios) / weights.sum(axis=1))


TUNERS: dict[str, TunerFactory] = {"neighbourhood": NeighbourhoodTuner}
