"""`itervar`: features of loop variables, after AutoTVM's, in a row of fixed width.

The layout of the row is in docs/reference/features.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.features.nests import (
    LOOP_KINDS,
    READS,
    Floats,
    Nest,
    heaviest,
    log2_signed,
    main_touches,
)

SLOTS = (12, 6, 6)
"""Loops that have features: of the nest with most work, of the next, of the one after."""
_OF_NEST = 5
_OF_TOUCH = 4
_OF_LOOP = 4 + len(LOOP_KINDS) + (1 + READS) * _OF_TOUCH
WIDTH = sum(_OF_NEST + slots * _OF_LOOP for slots in SLOTS)


def itervar_features(nests: Sequence[Nest]) -> Floats:
    """One row; loops that a kernel does not have are zeros."""
    seen: set[int] = set()
    parts: list[Floats] = []
    chosen = heaviest(nests, len(SLOTS))
    for position, slots in enumerate(SLOTS):
        part = np.zeros(_OF_NEST + slots * _OF_LOOP)
        if position < len(chosen):
            _fill(part, chosen[position], slots, seen)
        parts.append(part)
    return np.concatenate(parts)


def _fill(part: Floats, nest: Nest, slots: int, seen: set[int]) -> None:
    """The nest's own columns, then its loops from the innermost out, those not `seen` before."""
    part[:_OF_NEST] = log2_signed(np.array([nest.executions, *nest.arithmetic], dtype=np.float64))
    loops = part[_OF_NEST:].reshape(slots, _OF_LOOP)
    rows = _loop_rows(nest)
    fresh = [at for at, loop in enumerate(nest.loops) if loop.number not in seen]
    for slot, at in zip(range(slots), reversed(fresh), strict=False):
        loops[slot] = rows[at]
    seen.update(loop.number for loop in nest.loops)


def _loop_rows(nest: Nest) -> Floats:
    """A row per loop, outermost first."""
    rows = np.zeros((len(nest.loops), _OF_LOOP))
    inside = nest.executions_inside()
    touches = main_touches(nest)
    for at, loop in enumerate(nest.loops):
        topdown = nest.executions // inside[at + 1] if inside[at + 1] else 0
        rows[at, :4] = loop.extent, 0, topdown, inside[at]
        for number, touch in enumerate(touches):
            first = 4 + len(LOOP_KINDS) + number * _OF_TOUCH
            count = float(np.prod(touch.distinct[at:]))
            reuse = inside[at] / count
            rows[at, first : first + _OF_TOUCH] = touch.strides[at], touch.runs[at], count, reuse
    rows = log2_signed(rows)
    for at, loop in enumerate(nest.loops):
        rows[at, 1] = at + 1
        rows[at, 4 + LOOP_KINDS.index(loop.kind)] = 1.0
    return rows
