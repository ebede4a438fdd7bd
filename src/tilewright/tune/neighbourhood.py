"""Best guesses first, then the neighbours of what turned out best.

The implementations' estimates rank all settings. The first proposals are the best-ranked ones, kept
apart from each other; afterwards half of each batch are one-knob neighbours of the best measured
settings, the rest continues down the ranking, corrected by how far estimates were off nearby.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewright.core.records import Candidate, Device, KnobValue, Measurement, Outcome
from tilewright.graph.workload import Workload
from tilewright.tune.space import TaskSpace, spaces

_LEADERS = 3
_FIRST = 8


class NeighbourhoodTuner:
    """Searches the union of the spaces of all implementations that apply to a task."""

    def __init__(
        self, workload: Workload, layouts: tuple[str, ...], device: Device, *, seed: int = 0
    ) -> None:
        self._spaces = spaces(workload, layouts, device)
        self._offsets = np.cumsum([0, *(len(space.settings) for space in self._spaces)])
        self._estimates = np.concatenate([space.estimates_s for space in self._spaces])
        self._codes = np.concatenate([_codes(space) for space in _aligned(self._spaces)])
        self._seen = np.zeros(len(self._estimates), dtype=bool)
        self._times = np.full(len(self._estimates), np.nan)
        self._rng = np.random.default_rng(seed)

    @property
    def size(self) -> int:
        """Number of settings in all spaces."""
        return len(self._estimates)

    def ask(self, count: int) -> list[Candidate]:
        """Mixed proposals; see the module's docstring."""
        chosen: list[int] = []
        if np.count_nonzero(~np.isnan(self._times)) >= _FIRST:
            chosen += self._neighbours(count - count // 3)
        chosen += self._ranked(count - len(chosen), {*chosen})
        for index in chosen:
            self._seen[index] = True
        return [self._candidate(index) for index in chosen]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Take measurements and failures; foreign candidates are ignored."""
        for outcome in outcomes:
            index = self._find(outcome.candidate)
            if index is None:
                continue
            self._seen[index] = True
            if isinstance(outcome, Measurement):
                known = self._times[index]
                self._times[index] = np.nanmin([known, outcome.latency_s])

    def _candidate(self, index: int) -> Candidate:
        space = int(np.searchsorted(self._offsets, index, side="right")) - 1
        return self._spaces[space].candidate(index - int(self._offsets[space]))

    def _find(self, candidate: Candidate) -> int | None:
        for space, offset in zip(self._spaces, self._offsets, strict=False):
            if space.spec.name == candidate.implementation and space.layouts == candidate.layouts:
                index = space.index_of.get(candidate.settings)
                return None if index is None else int(offset) + index
        return None

    def _neighbours(self, count: int) -> list[int]:
        """Unseen settings that differ from a leader in one knob, nearest values first."""
        leaders = np.argsort(np.where(np.isnan(self._times), np.inf, self._times))[:_LEADERS]
        chosen: list[int] = []
        for leader in leaders:
            apart = self._codes != self._codes[leader]
            steps = np.abs(self._codes - self._codes[leader]).sum(axis=1)
            near = np.flatnonzero((apart.sum(axis=1) == 1) & ~self._seen)
            order = near[np.lexsort((self._estimates[near], steps[near]))]
            chosen += [int(i) for i in order[: max(1, count // 2)] if int(i) not in chosen]
        return chosen[:count]

    def _ranked(self, count: int, taken: set[int]) -> list[int]:
        """The best unseen settings by corrected estimate, spread over different register tiles."""
        ranking = np.argsort(self._estimates * self._correction(), kind="stable")
        free = [int(i) for i in ranking if not self._seen[i] and int(i) not in taken]
        if len(free) <= count:
            return free
        pool = free[: 4 * count]
        chosen: list[int] = []
        while len(chosen) < count:
            distances = [
                min((int((self._codes[i] != self._codes[j]).sum()) for j in chosen), default=9)
                for i in pool
            ]
            # far apart wins only among equally ranked: two ranks are worth one knob
            scores = [2 * d - rank / 2 for rank, d in enumerate(distances)]
            chosen.append(pool.pop(int(np.argmax(scores))))
        return chosen

    def _correction(self) -> npt.NDArray[np.float64]:
        """measured / estimated of the nearest measured settings, one factor per setting."""
        known = np.flatnonzero(~np.isnan(self._times))
        if known.size < 4:
            return np.ones(len(self._estimates))
        ratios = np.log(self._times[known] / self._estimates[known])
        apart = (self._codes[:, None, :] != self._codes[None, known, :]).sum(axis=2)
        weights = 4.0 ** -apart.astype(np.float64)
        return np.exp((weights @ ratios) / weights.sum(axis=1))


def _aligned(found: Sequence[TaskSpace]) -> list[tuple[int, TaskSpace, list[str]]]:
    names = sorted({name for space in found for name in space.settings[0]})
    return [(number, space, names) for number, space in enumerate(found)]


def _codes(entry: tuple[int, TaskSpace, list[str]]) -> npt.NDArray[np.int64]:
    """One row per setting: the implementation's number, then the position of each knob's value."""
    number, space, names = entry
    values: dict[str, dict[KnobValue, int]] = {
        knob.name: {value: position for position, value in enumerate(knob.values)}
        for knob in space.spec.knobs(space.workload, space.device, space.layouts)
    }
    return np.array(
        [
            [100 * number, *(values[n][s[n]] if n in values else -1 for n in names)]
            for s in space.settings
        ],
        dtype=np.int64,
    )
