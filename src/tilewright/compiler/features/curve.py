"""`curve`: how often elements are used again, against how many there are; after AutoTVM's.

Nothing in it names a loop or a buffer, so that rows of different operators can be compared. The
layout of the row is in docs/reference/features.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.features.nests import (
    READS,
    Floats,
    Nest,
    Touch,
    heaviest,
    main_touches,
)

SAMPLES = 20
STEP = 1.5
"""Samples lie at 0, 1.5, 3 … in log2, up to 2**28.5."""
_RELATIONS = 4
_OF_TOUCH = _RELATIONS * SAMPLES
WIDTH = (1 + READS) * _OF_TOUCH


def curve_features(nests: Sequence[Nest]) -> Floats:
    """One row, from the nest with most work; buffers that it does not have are zeros."""
    row = np.zeros(WIDTH)
    for nest in heaviest(nests, 1):
        for at, touch in enumerate(sorted(main_touches(nest), key=_written_then_largest)):
            row[at * _OF_TOUCH : (at + 1) * _OF_TOUCH] = _curves(nest, touch)
    return row


def _written_then_largest(touch: Touch) -> tuple[bool, float]:
    return not touch.written, -touch.footprint_bytes


def _curves(nest: Nest, touch: Touch) -> Floats:
    """reuse(count), count(reuse), topdown(count), count(topdown), sampled."""
    inside = np.array(nest.executions_inside(), dtype=np.float64)
    distinct = np.array([*touch.distinct, 1.0])
    count = np.log2(np.maximum(1.0, np.cumprod(distinct[::-1])[::-1]))
    executions = np.log2(np.maximum(1.0, inside))
    reuse, topdown = executions - count, executions[0] - executions
    pairs = ((count, reuse), (reuse, count), (count, topdown), (topdown, count))
    return np.concatenate([_sampled(x, y) for x, y in pairs])


def _sampled(x: Floats, y: Floats) -> Floats:
    """The line through the points at all samples, level beyond its ends; where points lie above
    each other, the highest."""
    places, group = np.unique(x.round(9), return_inverse=True)
    heights = np.zeros(len(places))
    np.maximum.at(heights, group, y)
    return np.interp(np.arange(SAMPLES) * STEP, places, heights)
