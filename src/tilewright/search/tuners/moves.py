"""Small changes to settings, many at once, for the tuners that walk."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.kernels.search_space import Numbers, SearchSpace

Mask = npt.NDArray[np.bool_]


def valid_mask(space: SearchSpace, numbers: Numbers) -> Mask:
    """Which numbers the filters accept."""
    listed = space.listed
    if listed is None:
        return space.accepted(numbers)
    if not len(listed):
        return np.zeros(len(numbers), dtype=np.bool_)
    place = np.minimum(np.searchsorted(listed, numbers), len(listed) - 1)
    return listed[place] == numbers


def changed(
    space: SearchSpace, numbers: Numbers, rng: np.random.Generator, *, near: float = 0.0
) -> Numbers:
    """Each number with one knob at another value, valid or not.

    A share `near` of the changes goes to the next value, up or down; the others to any value.
    """
    owner, inner = space.located(numbers)
    moved = np.array(numbers, dtype=np.int64)
    for index in np.unique(owner):
        knobs = space.parts[int(index)].knobs
        lengths = np.array(knobs.lengths, dtype=np.int64)
        free = np.flatnonzero(lengths > 1)
        if not free.size:
            continue
        rows = np.flatnonzero(owner == index)
        digits = knobs.digits(inner[rows])
        columns = rng.choice(free, size=len(rows))
        length, old = lengths[columns], digits[np.arange(len(rows)), columns]
        anywhere = (old + rng.integers(1, length)) % length
        beside = old + rng.choice(np.array([-1, 1]), size=len(rows))
        beside = np.where((beside < 0) | (beside >= length), 2 * old - beside, beside)
        digits[np.arange(len(rows)), columns] = np.where(
            rng.random(len(rows)) < near, beside, anywhere
        )
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
    for index in np.unique(owner):
        knobs = space.parts[int(index)].knobs
        rows = np.flatnonzero((owner == index) & (other == index))
        if not rows.size:
            continue
        ours, theirs = knobs.digits(inner[rows]), knobs.digits(outer[rows])
        mixed = np.where(rng.random(ours.shape) < 0.5, ours, theirs)
        children[rows] += knobs.compose(mixed) - inner[rows]
    return children
