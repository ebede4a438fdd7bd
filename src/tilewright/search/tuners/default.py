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

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tilewright.core.records import Outcome
from tilewright.kernels.knobs import split_sizes
from tilewright.kernels.search_space import Floats, Numbers, SearchSpace
from tilewright.search.tuners import base, droplet, surrogate

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


class DefaultTuner(base.NumberTuner):
    """See the module's docstring."""

    def __init__(self, task: base.TuningTask) -> None:
        super().__init__(task)
        self._process: surrogate.GaussianProcess | None = None
        self._fitted = 0
        self._finisher = droplet.DropletTuner(task)
        self._finisher.known = self.known

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Learn outcomes; what is known is shared with the finisher."""
        self._finisher.tell(outcomes)

    def propose(self, count: int) -> list[int]:
        """A batch by expected improvement; the first ones by estimate or balanced."""
        free = np.setdiff1d(np.arange(len(self._pool)), self._taken())
        if not len(free):
            return self.unseen(count)
        few = len(self.known.seconds) < min(_FIRST, len(self._pool))
        picked = self._first(free, count) if few else self._improving(free, count)
        numbers: list[int] = self._pool[picked].tolist()
        return numbers if len(numbers) >= count else [*numbers, *self._finisher.propose(count)]

    @cached_property
    def _pool(self) -> Numbers:
        """The settings that are considered: all, or of a large space what was told, the best
        estimates and others drawn evenly."""
        listed = self.space.listed
        if listed is not None and len(listed) <= 2 * _POOL:
            return listed
        drawn: list[int] = self.space.all_or_sample(self.rng, 8 * _POOL).tolist()
        estimates = self.space.estimates_s(drawn)
        if estimates is None:
            drawn = drawn[:_POOL]
        else:
            best = [drawn[int(row)] for row in np.argsort(estimates, kind="stable")[:_POOL]]
            drawn = [*best, *self.rng.choice(drawn, size=_POOL, replace=False).tolist()]
        return np.array([*dict.fromkeys([*self.known.seen, *drawn])], dtype=np.int64)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {number: row for row, number in enumerate(self._pool.tolist())}

    @cached_property
    def _features(self) -> Floats:
        return _scaled(self.space, self._pool)

    @cached_property
    def _prior(self) -> Floats | None:
        """What is expected of the log times of the pool, but for their level: by the estimates and
        by similar tasks; None where there is neither."""
        estimates = self.space.estimates_s(self._pool)
        logs = None if estimates is None else np.log(estimates)
        if not self.task.prior_trials:
            return logs
        learnt = _learnt(self.space.features(self._pool), self.task.prior_trials)
        return learnt if logs is None else logs + learnt

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
        targets = (unexplained - center) / scale
        told = len(self.known.seconds) + len(self.known.failed)
        process = self._process = self._process or surrogate.GaussianProcess(
            self._features.shape[1]
        )
        if told >= _GROWTH * self._fitted:
            fastest = np.argsort(targets, kind="stable")[:_FITTED]
            process.fit(self._features[rows[fastest]], targets[fastest])
            self._fitted = told
        process.condition(self._features[rows], targets)
        outlook = surrogate.Outlook(process, self._features[free])
        expected = outlook.mean * scale + center + prior[free]
        picked: list[int] = []
        while len(picked) < min(count, len(free)):
            bold = self._prior is None and 2 * len(picked) >= count
            deviation = outlook.deviation * scale * (_BOLD if bold else 1.0)
            gain = surrogate.expected_improvement(expected, deviation, float(logs.min()))
            gain[picked] = -np.inf
            best = int(np.argmax(gain))
            if float(gain[best]) < _FINISH:
                break
            picked.append(best)
            outlook.assume(best)
        return [int(free[row]) for row in picked]

    def _data(self) -> tuple[Numbers, Floats]:
        """Rows of the pool that have outcomes and their log times, the slow end made flat; a
        failure counts as slow."""
        placed = [number for number in self.known.fastest() if number in self._place][:_DATA]
        failed = self.known.failed - self.known.seconds.keys()
        slow = [self._place[number] for number in failed if number in self._place][:_DATA]
        logs = np.log([self.known.seconds[number] for number in placed])
        limit = float(logs.min()) + _SLOW
        logs = np.append(np.minimum(logs, limit), np.full(len(slow), min(limit, logs.max())))
        return np.array([*(self._place[number] for number in placed), *slow]), logs

    def _level_prior(self, rows: Numbers, logs: Floats) -> Floats:
        """The estimates on the measured level, as flat at the slow end; zero without estimates."""
        if self._prior is None:
            return np.zeros(len(self._pool))
        level = float(np.median(logs - self._prior[rows]))
        return np.minimum(self._prior + level, float(logs.min()) + _SLOW)


def _learnt(features: Floats, prior_trials: Sequence[base.PriorTrials]) -> Floats:
    """What similar tasks say of each setting: the log of time over estimate, or over the best time,
    near it; settings far from all that was measured stay at zero."""
    span = features.max(axis=0) - features.min(axis=0)
    span[span == 0] = 1.0
    total, weights = np.zeros(len(features)), np.ones(len(features))
    for trials in prior_trials:
        logs = np.log(trials.relative)
        if trials.estimated is not None:
            logs = logs - np.log(trials.estimated)
        logs = np.clip(logs - np.median(logs), -1.0, 1.0)
        for row, log in zip(trials.features, logs, strict=True):
            near = np.exp(-4.0 * (np.abs(features - row) / span).sum(axis=1))
            total += near * log
            weights += near
    return total / weights


def _scaled(space: SearchSpace, numbers: Numbers) -> Floats:
    """What the model sees, each column over a range of two, constant ones left out: knob features;
    how often two divides each size, what vector widths and memory lines care about; and sums of two
    sizes' logarithms, since it is their product that fills a register file, a block or a cache."""
    digits = space.digits(numbers)
    splits = {
        column: [split_sizes(value)[-1] for value in knob.values]
        for column, knob in enumerate(space.knobs, start=1)
        if knob.kind == "split"
    }
    # the last place is for parts that lack the knob
    powers = {c: [(n & -n).bit_length() - 1.0 for n in sizes] for c, sizes in splits.items()}
    twos = [np.array([*found, 0.0])[digits[:, column]] for column, found in powers.items()]
    logs = [np.array([*np.log2(found), 0.0])[digits[:, c]] for c, found in splits.items()]
    pairs = [logs[i] + logs[j] for i in range(len(logs)) for j in range(i)][:_PAIRS]
    features = np.column_stack([space.features(numbers), *twos, *pairs])
    span = np.ptp(features, axis=0)
    if not span.any():
        return np.zeros((len(numbers), 1))
    return 2.0 * features[:, span > 0] / span[span > 0]
