"""Evolution: the fastest settings are parents, their mixtures are tried next.

Unlike AutoTVM's, children that were seen before are never proposed, and a generation is whatever is
asked for, so that every outcome counts at once. The fastest settings stay parents until faster ones
push them out.
"""

from __future__ import annotations

import numpy as np

from tilewright.kernels.search_space import Numbers
from tilewright.search.tuners.base import NumberTuner, TunerFactory
from tilewright.search.tuners.moves import changed, crossed, valid_mask

_FIRST = 16
"""Random settings before there are parents."""
_POPULATION = 16
_MUTATION = 0.4
"""Share of the children that have one more knob changed."""
_TRIES = 12
"""Children bred for each one wanted; invalid and known ones are dropped."""


class GeneticTuner(NumberTuner):
    """See the module's docstring."""

    def propose(self, count: int) -> list[int]:
        """Children of the fastest settings; random settings where there are too few."""
        parents = sorted(self.known.seconds, key=lambda number: self.known.seconds[number])
        if len(self.known.seen) < _FIRST or len(parents) < 2:
            return self.unseen(count)
        children = self._children(np.array(parents[:_POPULATION], dtype=np.int64), count)
        return [*children, *self.unseen(count)] if len(children) < count else children

    def _children(self, parents: Numbers, count: int) -> list[int]:
        weights = 1.0 / (1.0 + np.arange(len(parents)))
        weights /= weights.sum()
        bred = _TRIES * count
        mothers = self.rng.choice(parents, size=bred, p=weights)
        fathers = self.rng.choice(parents, size=bred, p=weights)
        children = crossed(self.space, mothers, fathers, self.rng)
        mutants = changed(self.space, children, self.rng, near=0.5)
        same = (children == mothers) | (children == fathers)
        children = np.where(same | (self.rng.random(bred) < _MUTATION), mutants, children)
        fresh = [n for n in dict.fromkeys(children.tolist()) if n not in self.known.seen]
        kept = np.array(fresh, dtype=np.int64)
        return [int(n) for n in kept[valid_mask(self.space, kept)][:count]]


TUNERS: dict[str, TunerFactory] = {"genetic": GeneticTuner}
