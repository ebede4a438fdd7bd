"""The default tuner: a Gaussian process on log time, led by the implementations' estimates.

The first batch are the best estimates, kept apart. Without estimates it is a balanced sample: all
values of all knobs about equally often, far from each other. Afterwards each batch maximises
expected improvement under the model, one pick after the other, with the model's own guess standing
in for what is not measured yet. Where there are estimates, the model learns what they leave
unexplained. Where there are none, half of each batch is picked as if the model were less sure, as
what is fitted to few times alone is too sure of itself. Once the model expects next to nothing,
coordinate descent from the best setting finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.core.records import Outcome
from tilewright.kernels.knobs import split_sizes
from tilewright.kernels.search_space import Floats, Numbers, SearchSpace
from tilewright.search.tuners.base import NumberTuner, Precedent, TunerFactory, TuningTask
from tilewright.search.tuners.droplet import DropletTuner
from tilewright.search.tuners.surrogate import GaussianProcess, Outlook, expected_improvement

_FIRST = 8
"""Measurements before the model takes over."""
_POOL = 3000
_SLOW = 1.5
"""Times beyond e^1.5 times the best all count as that slow: only the fast end matters."""
_PAIRS = 10
_FINISH = 2e-3
"""Below so much expected gain of log time the finisher takes over."""
_BOLD = 2.0
"""Without estimates the model's deviations count so many times for half of each batch."""
_DATA = 300
"""The model knows so many measurements at most, the fastest ones, and as many failures."""
_FITTED = 200
"""Its lengths, scale and noise are fitted to so many of them at most, the fastest ones."""
_GROWTH = 1.2
"""They are fitted anew when there are so many times as many outcomes."""
_LEAST_USED, _DRAWN = 0.1, 32
"""The balanced sample takes the most distant of some settings, drawn from that share of all whose
values were used least."""


class DefaultTuner(NumberTuner):
    """See the module's docstring."""

    def __init__(self, task: TuningTask) -> None:
        super().__init__(task)
        self._pool: Numbers = np.empty(0, dtype=np.int64)
        self._place: dict[int, int] = {}
        self._features: Floats = np.empty((0, 1))
        self._prior: Floats | None = None
        self._process: GaussianProcess | None = None
        self._fitted = 0
        self._finisher = DropletTuner(task)
        self._finisher.known = self.known

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Learn outcomes; what is known is shared with the finisher."""
        self._finisher.tell(outcomes)

    def propose(self, count: int) -> list[int]:
        """A batch by expected improvement; the first ones by estimate or balanced."""
        self._settle()
        free = self._free()
        if not len(free):
            return self.unseen(count)
        if len(self.known.seconds) < min(_FIRST, len(self._pool)):
            picked = self._first(free, count)
        else:
            picked = self._improving(free, count)
        numbers = [int(self._pool[row]) for row in picked]
        if len(numbers) < count:
            descending = self._finisher.propose(count)
            numbers += [number for number in descending if number not in numbers]
        return numbers

    def _settle(self) -> None:
        """Fix the pool of settings that are considered, once; what was told is part of it."""
        if len(self._pool):
            return
        listed = self.space.listed
        if listed is None or len(listed) > 2 * _POOL:
            drawn = self._drawn(listed)
            self._pool = np.array(list(dict.fromkeys([*self.known.seen, *drawn])), dtype=np.int64)
        else:
            self._pool = listed
        self._place = {int(number): row for row, number in enumerate(self._pool)}
        estimates = self.space.estimates_s(self._pool)
        self._prior = None if estimates is None else np.log(estimates)
        learnt = _learnt(self.space.features(self._pool), self.task.precedents)
        if learnt is not None:
            self._prior = learnt if self._prior is None else self._prior + learnt
        self._features = _scaled(self.space, self._pool)

    def _drawn(self, listed: Numbers | None) -> list[int]:
        """The best estimates of a large space and others drawn evenly."""
        drawn = self.space.sample(self.rng, 8 * _POOL) if listed is None else list(map(int, listed))
        estimates = self.space.estimates_s(drawn)
        if estimates is None:
            return drawn[:_POOL]
        order = np.argsort(estimates, kind="stable")
        best = [drawn[int(i)] for i in order[:_POOL]]
        return [*best, *(int(n) for n in self.rng.choice(drawn, size=_POOL, replace=False))]

    def _free(self) -> Numbers:
        taken = np.zeros(len(self._pool), dtype=bool)
        taken[self._taken()] = True
        return np.flatnonzero(~taken)

    def _first(self, free: Numbers, count: int) -> list[int]:
        """The best estimates kept apart; without estimates, a balanced sample."""
        if self._prior is None:
            return self._balanced(free, count)
        free = free[np.argsort(self._prior[free], kind="stable")][: 4 * count]
        handicap = 0.5 * np.arange(len(free)) / len(free)
        near = self._nearest(free)
        picked: list[int] = []
        while len(picked) < min(count, len(free)) and (near > 0).any():
            scale = float(near.max())
            spread = near / scale if 0 < scale < np.inf else np.where(np.isinf(near), 1.0, near)
            best = int(np.argmax(np.where(near > 0, spread - handicap, -np.inf)))
            picked.append(int(free[best]))
            near = np.minimum(near, self._apart(free, picked[-1]))
            near[best] = 0.0
        return picked

    def _balanced(self, free: Numbers, count: int) -> list[int]:
        """Settings whose values were used least so far, far from what was picked before."""
        places = self.space.digits(self._pool) + 1
        lengths = [len(np.unique(column)) for column in places.T]
        taken = self._taken()
        near = self._nearest(free)
        for _ in range(min(count, len(free))):
            uses = np.zeros(len(free))
            for column, length in zip(places.T, lengths, strict=True):
                used = np.bincount(column[taken], minlength=int(column.max()) + 1)
                uses += length * used[column[free]]
            least = np.flatnonzero(uses <= np.quantile(uses, _LEAST_USED))
            drawn = self.rng.choice(least, size=min(_DRAWN, len(least)), replace=False)
            best = int(drawn[np.argmax(near[drawn])])
            taken.append(int(free[best]))
            free, near = np.delete(free, best), np.delete(near, best)
            near = np.minimum(near, self._apart(free, taken[-1]))
        return taken[len(self._taken()) :]

    def _taken(self) -> list[int]:
        return [self._place[n] for n in sorted(self.known.seen) if n in self._place]

    def _nearest(self, rows: Numbers) -> Floats:
        """How far each row is from all that was proposed or told; infinite before the first."""
        near = np.full(len(rows), np.inf)
        for row in self._taken():
            near = np.minimum(near, self._apart(rows, row))
        return near

    def _apart(self, rows: Numbers, row: int) -> Floats:
        return np.abs(self._features[rows] - self._features[row]).sum(axis=1)

    def _improving(self, free: Numbers, count: int) -> list[int]:
        """By expected improvement, as long as some is expected."""
        rows, logs = self._data()
        prior = self._level_prior(rows, logs)
        unexplained = logs - prior[rows]
        scale = max(0.05, float(unexplained.std()))
        center = float(unexplained.mean())
        process = self._conditioned(rows, (unexplained - center) / scale)
        outlook = Outlook(process, self._features[free])
        expected = outlook.mean * scale + center + prior[free]
        picked: list[int] = []
        while len(picked) < min(count, len(free)):
            bold = self._prior is None and 2 * len(picked) >= count
            deviation = outlook.deviation * scale * (_BOLD if bold else 1.0)
            gain = expected_improvement(expected, deviation, float(logs.min()))
            gain[picked] = -np.inf
            best = int(np.argmax(gain))
            if float(gain[best]) < _FINISH:
                break
            picked.append(best)
            outlook.assume(best)
        return [int(free[row]) for row in picked]

    def _conditioned(self, rows: Numbers, targets: Floats) -> GaussianProcess:
        """The model with these data, its parameters fitted anew when the outcomes became many."""
        told = len(self.known.seconds) + len(self.known.failed)
        process = self._process or GaussianProcess(self._features.shape[1])
        if told >= _GROWTH * self._fitted:
            fastest = np.argsort(targets, kind="stable")[:_FITTED]
            process.fit(self._features[rows[fastest]], targets[fastest])
            self._fitted = told
        process.condition(self._features[rows], targets)
        self._process = process
        return process

    def _data(self) -> tuple[Numbers, Floats]:
        """Rows of the pool that have outcomes and their log times, the slow end made flat; a
        failure counts as slow."""
        known = {self._place[n]: s for n, s in self.known.seconds.items() if n in self._place}
        fastest = dict(sorted(known.items(), key=lambda entry: entry[1])[:_DATA])
        failed = [self._place[n] for n in self.known.failed if n in self._place]
        failed = [row for row in failed if row not in known][:_DATA]
        logs = np.log(np.array(list(fastest.values())))
        limit = float(logs.min()) + _SLOW
        logs = np.append(np.minimum(logs, limit), np.full(len(failed), min(limit, logs.max())))
        return np.array([*fastest, *failed], dtype=np.int64), logs

    def _level_prior(self, rows: Numbers, logs: Floats) -> Floats:
        """The estimates on the measured level, as flat at the slow end; zero without estimates."""
        if self._prior is None:
            return np.zeros(len(self._pool))
        level = float(np.median(logs - self._prior[rows]))
        return np.minimum(self._prior + level, float(logs.min()) + _SLOW)


def _learnt(features: Floats, precedents: Sequence[Precedent]) -> Floats | None:
    """What similar tasks say of each setting: the log of time over estimate, or over the best time,
    near it; settings far from all that was measured stay at zero."""
    span = features.max(axis=0) - features.min(axis=0)
    span[span == 0] = 1.0
    total, weights = np.zeros(len(features)), np.ones(len(features))
    for precedent in precedents:
        logs = np.log(precedent.relative)
        if precedent.estimated is not None:
            logs = logs - np.log(precedent.estimated)
        logs = np.clip(logs - np.median(logs), -1.0, 1.0)
        for row, log in zip(precedent.features, logs, strict=True):
            near = np.exp(-4.0 * (np.abs(features - row) / span).sum(axis=1))
            total += near * log
            weights += near
    return total / weights if precedents else None


def _scaled(space: SearchSpace, numbers: Numbers) -> Floats:
    """What the model sees, each column over a range of two, constant ones left out: knob features,
    alignments, and sums of two sizes' logarithms, since it is their product that fills a register
    file, a block or a cache."""
    sizes = _log_sizes(space, numbers)
    pairs = [sizes[:, i] + sizes[:, j] for i in range(sizes.shape[1]) for j in range(i)][:_PAIRS]
    columns = [space.features(numbers), _alignment(space, numbers)]
    features = np.hstack([*columns, *(pair[:, None] for pair in pairs)])
    span = features.max(axis=0) - features.min(axis=0)
    if not (span > 0).any():
        return np.zeros((len(numbers), 1))
    return 2.0 * features[:, span > 0] / span[span > 0]


def _log_sizes(space: SearchSpace, numbers: Numbers) -> Floats:
    """log2 of the innermost part of every split."""
    return _of_sizes(space, numbers, lambda size: float(np.log2(size)))


def _alignment(space: SearchSpace, numbers: Numbers) -> Floats:
    """How often two divides each size: what vector widths and memory lines care about."""
    return _of_sizes(space, numbers, lambda size: (size & -size).bit_length() - 1.0)


def _of_sizes(space: SearchSpace, numbers: Numbers, of: Callable[[int], float]) -> Floats:
    """A column per split, from the size of its innermost part; zero where a part lacks it."""
    digits = space.digits(numbers)
    columns: list[Floats] = []
    for column, knob in enumerate(space.knobs, start=1):
        if knob.kind == "split":
            table = [of(split_sizes(value)[-1]) for value in knob.values]
            columns.append(np.array([*table, 0.0])[digits[:, column]])
    return np.stack(columns, axis=1) if columns else np.empty((len(numbers), 0))


TUNERS: dict[str, TunerFactory] = {"default": DefaultTuner}
