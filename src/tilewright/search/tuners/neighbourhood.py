"""Best guesses first, then the neighbours of what turned out best.

The implementations' estimates rank all settings. The first proposals are the best-ranked ones, kept
apart from each other; afterwards most of each batch are one-knob neighbours of the best measured
settings, the rest continues down the ranking, corrected by how far estimates were off nearby.
Without estimates the ranking is random. Large spaces are ranked by a sample.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tilewright.kernels.search_space import Floats, Numbers
from tilewright.search.tuners.base import NumberTuner

_LEADERS = 3
_FIRST = 8
_POOL = 4096
_CORRECTING = 256
"""The estimates are corrected by so many measurements at most, the latest ones."""
_APART = 1000
"""Added to the code of the implementation, so that another one is no neighbour."""


class NeighbourhoodTuner(NumberTuner):
    """See the module's docstring."""

    def propose(self, count: int) -> list[int]:
        """Mixed proposals; see the module's docstring."""
        chosen: list[int] = []
        if len(self.known.seconds) >= _FIRST:
            chosen += self._neighbours(count - count // 3)
        chosen += self._ranked(count - len(chosen), {*chosen})
        return chosen or self.unseen(count)

    @cached_property
    def _considered(self) -> tuple[Numbers, Floats | None]:
        """The settings that are ranked: all, or a sample of a large space, drawn once; and their
        estimates, without which the order is random."""
        pool = self.space.all_or_sample(self.rng, _POOL)
        estimates = self.space.estimates_s(pool)
        return (self.rng.permutation(pool) if estimates is None else pool), estimates

    @cached_property
    def _codes(self) -> Numbers:
        return self._coded(self._considered[0])

    def _coded(self, numbers: Numbers | list[int]) -> Numbers:
        codes = self.space.digits(numbers)
        codes[:, 0] *= _APART
        return codes

    def _neighbours(self, count: int) -> list[int]:
        """Unseen settings that differ from a leader in one knob, nearest values first."""
        chosen: list[int] = []
        for leader in self.known.fastest()[:_LEADERS]:
            fresh = self.known.fresh(self.space.neighbours(leader))
            near = [number for number in fresh if number not in chosen]
            if not near:
                continue
            steps = np.abs(self._coded(near) - self._coded([leader]))
            estimates = self.space.estimates_s(near)
            tie = self.rng.random(len(near)) if estimates is None else estimates
            order = np.lexsort((tie, steps.sum(axis=1)))
            chosen += [near[int(row)] for row in order[: max(1, count // 2)]]
        return chosen[:count]

    def _ranked(self, count: int, taken: set[int]) -> list[int]:
        """The best unseen settings by corrected estimate, kept apart from each other."""
        pool, estimates = self._considered
        ranking = (
            np.arange(len(pool))
            if estimates is None
            else np.argsort(estimates * self._correction(len(pool)), kind="stable")
        )
        known = self.known.seen | taken
        free = [int(row) for row in ranking if int(pool[row]) not in known][: 4 * count]
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

    def _correction(self, size: int) -> Floats:
        """measured / estimated of the nearest measured settings, one factor per setting."""
        numbers, seconds = self.known.arrays()
        numbers, seconds = numbers[-_CORRECTING:], seconds[-_CORRECTING:]
        guessed = self.space.estimates_s(numbers) if len(numbers) >= 4 else None
        if guessed is None:
            return np.ones(size)
        ratios = np.log(seconds / guessed)
        codes = self._coded(numbers)
        apart = np.zeros((size, len(numbers)), dtype=np.int8)
        for column in range(codes.shape[1]):
            apart += self._codes[:, None, column] != codes[None, :, column]
        weights = 4.0 ** -apart.astype(np.float64)
        return np.exp((weights @ ratios) / weights.sum(axis=1))
