"""Small changes to settings, many at once, for the tuners that walk; simulated annealing; and
evolution: the fastest settings are parents, their mixtures are tried next.

Unlike AutoTVM's, children that were seen before are never proposed, and a generation is whatever is
asked for, so that every outcome counts at once. The fastest settings stay parents until faster ones
push them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.kernels.search_space import Floats, KnobSpace, Numbers, SearchSpace
from tilewright.search.tuners.base import NumberTuner

_CHAINS = 96
_STEPS = 40
_PATIENCE = 12
_NEAR = 0.4

Mask = npt.NDArray[np.bool_]
Score = Callable[[Numbers], Floats]


def valid_mask(space: SearchSpace, numbers: Numbers) -> Mask:
    """Which numbers the filters accept."""
    listed = space.listed
    return space.accepted(numbers) if listed is None else np.isin(numbers, listed)


def changed(
    space: SearchSpace, numbers: Numbers, rng: np.random.Generator, *, near: float = 0.0
) -> Numbers:
    """Each number with one knob at another value, valid or not.

    A share `near` of the changes goes to the next value, up or down; the others to any value.
    """
    owner, inner = space.located(numbers)
    moved = np.array(numbers, dtype=np.int64)
    for index, knobs in _parts(space, owner):
        lengths = np.array(knobs.lengths, dtype=np.int64)
        free = np.flatnonzero(lengths > 1)
        if not free.size:
            continue
        rows = np.flatnonzero(owner == index)
        digits, every = knobs.digits(inner[rows]), np.arange(len(rows))
        columns = rng.choice(free, size=len(rows))
        length, old = lengths[columns], digits[every, columns]
        anywhere = (old + rng.integers(1, length)) % length
        beside = old + rng.choice(np.array([-1, 1]), size=len(rows))
        beside = np.where((beside < 0) | (beside >= length), 2 * old - beside, beside)
        digits[every, columns] = np.where(rng.random(len(rows)) < near, beside, anywhere)
        moved[rows] += knobs.compose(digits) - inner[rows]
    return moved


def crossed(
    space: SearchSpace, mothers: Numbers, fathers: Numbers, rng: np.random.Generator
) -> Numbers:
    """Each mother with about half her values taken from the father, valid or not.

    Parents from different implementations have no children: the mother stays as she is.
    """
    owner, inner = space.located(mothers)
    other, outer = space.located(fathers)
    children = np.array(mothers, dtype=np.int64)
    for index, knobs in _parts(space, owner[owner == other]):
        rows = np.flatnonzero((owner == index) & (other == index))
        ours, theirs = knobs.digits(inner[rows]), knobs.digits(outer[rows])
        mixed = np.where(rng.random(ours.shape) < 0.5, ours, theirs)
        children[rows] += knobs.compose(mixed) - inner[rows]
    return children


def _parts(space: SearchSpace, owner: Numbers) -> Iterator[tuple[int, KnobSpace]]:
    """The parts of the space that own some numbers."""
    for index in np.unique(owner):
        yield int(index), space.parts[int(index)].knobs


def anneal(
    space: SearchSpace, score: Score, starts: Sequence[int], rng: np.random.Generator
) -> tuple[Numbers, Floats]:
    """Settings that many chains side by side met, and their scores, best first; `starts` come
    first in the chains.

    Scores may have any sign and scale: the temperature follows their spread. It ends early when
    the best have not changed for a while.
    """
    fill = space.sample(rng, max(1, _CHAINS - len(starts)))
    current = np.array(list(dict.fromkeys([*starts, *fill]))[:_CHAINS], dtype=np.int64)
    if not len(current):
        return current, np.empty(0)
    values = score(current)
    met, scores = [current], [values]
    best, since = float(values.max()), 0
    for step in range(_STEPS):
        moved = changed(space, current, rng, near=_NEAR)
        moved = np.where(valid_mask(space, moved), moved, current)
        reached = score(moved)
        heat = (1.0 - step / _STEPS) * max(float(values.std()), 1e-9)
        accept = rng.random(len(current)) < np.exp(np.minimum(0.0, (reached - values) / heat))
        current, values = np.where(accept, moved, current), np.where(accept, reached, values)
        met.append(moved)
        scores.append(reached)
        since = since + 1 if reached.max() <= best else 0
        best = max(best, float(reached.max()))
        if since > _PATIENCE:
            break
    numbers, first = np.unique(np.concatenate(met), return_index=True)
    found = np.concatenate(scores)[first]
    order = np.argsort(-found, kind="stable")
    return numbers[order], found[order]


_FIRST = 16
"""Random settings before there are parents."""
_POPULATION = 16
_MUTATION = 0.4
"""Share of the children that have one more knob changed."""
_TRIES = 12
"""Children bred for each one wanted; invalid and known ones are dropped."""


class GeneticTuner(NumberTuner):
    """Evolution; see the module's docstring."""

    def propose(self, count: int) -> list[int]:
        """Children of the fastest settings; random settings where there are too few."""
        parents = np.array(self.known.fastest()[:_POPULATION], dtype=np.int64)
        if len(self.known.seen) < _FIRST or len(parents) < 2:
            return self.unseen(count)
        weights = 1.0 / (1.0 + np.arange(len(parents)))
        weights /= weights.sum()
        bred = _TRIES * count
        mothers = self.rng.choice(parents, size=bred, p=weights)
        fathers = self.rng.choice(parents, size=bred, p=weights)
        children = crossed(self.space, mothers, fathers, self.rng)
        mutants = changed(self.space, children, self.rng, near=0.5)
        same = (children == mothers) | (children == fathers)
        children = np.where(same | (self.rng.random(bred) < _MUTATION), mutants, children)
        fresh = np.array(self.known.fresh(children.tolist()), dtype=np.int64)
        found: list[int] = fresh[valid_mask(self.space, fresh)][:count].tolist()
        return [*found, *self.unseen(count)] if len(found) < count else found
