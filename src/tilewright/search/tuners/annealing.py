"""Simulated annealing over a model's scores, many chains side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.kernels.search_space import Floats, Numbers, SearchSpace
from tilewright.search.tuners.moves import changed, valid_mask

_CHAINS = 96
_STEPS = 40
_PATIENCE = 12
_NEAR = 0.4

Score = Callable[[Numbers], Floats]


def anneal(
    space: SearchSpace, score: Score, starts: Sequence[int], rng: np.random.Generator
) -> tuple[Numbers, Floats]:
    """Settings that were met and their scores, best first; `starts` come first in the chains.

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
