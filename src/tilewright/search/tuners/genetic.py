"""Evolution: the fastest settings are parents, their mixtures are tried next.

Unlike AutoTVM's, children that were seen before are never proposed, and a generation is whatever is
asked for, so that every outcome counts at once. The fastest settings stay parents until faster ones
push them out.
"""

from __future__ import annotations

import numpy as np

from tilewright.search.tuners import base, walking

_FIRST = 16
"""Random settings before there are parents."""
_POPULATION = 16
_MUTATION = 0.4
"""Share of the children that have one more knob changed."""
_TRIES = 12
"""Children bred for each one wanted; invalid and known ones are dropped."""


class GeneticTuner(base.NumberTuner):
    """See the module's docstring."""

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
        children = walking.crossed(self.space, mothers, fathers, self.rng)
        mutants = walking.changed(self.space, children, self.rng, near=0.5)
        same = (children == mothers) | (children == fathers)
        children = np.where(same | (self.rng.random(bred) < _MUTATION), mutants, children)
        fresh = np.array(self.known.fresh(children.tolist()), dtype=np.int64)
        found: list[int] = fresh[walking.valid_mask(self.space, fresh)][:count].tolist()
        return [*found, *self.unseen(count)] if len(found) < count else found
