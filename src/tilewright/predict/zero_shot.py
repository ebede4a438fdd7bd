"""The settings that the predictors expect to be fastest, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import spaces
from tilewright.predict.collected import family_of
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors

_CONSIDERED = 256
"""Settings per implementation that the facts' rough time puts first; the model ranks these."""

_GUESSES = 3


@dataclass(frozen=True, kw_only=True)
class BestGuesses:
    """The best settings of a task by the family's model; none where no model knows this class.
    Models that are not there yet are made with `fitting` only."""

    placement: Placement
    predictors: Predictors
    max_error: float = inf
    fitting: bool = True
    _found: dict[tuple[str, tuple[Form, ...]], tuple[Candidate, ...]] = field(
        default_factory=dict[tuple[str, tuple[Form, ...]], tuple[Candidate, ...]]
    )

    def __call__(self, workload: Workload, forms: tuple[Form, ...]) -> tuple[Candidate, ...]:
        """A few candidates, the most promising first."""
        key = (workload.key, forms)
        if key not in self._found:
            self._found[key] = self._guessed(workload, forms)
        return self._found[key]

    def _guessed(self, workload: Workload, forms: tuple[Form, ...]) -> tuple[Candidate, ...]:
        fitting = self.fitting and self.predictors.known
        model = self.predictors.model(family_of(workload), fitting=fitting)
        if model is None or model.origin != str(self.placement.key):
            return ()
        kernels: list[Kernel] = []
        for space in spaces(workload, forms, self.placement, self.max_error):
            first = np.argsort(space.estimates_s, kind="stable")[:_CONSIDERED]
            kernels += [(workload, space.part.candidate(int(space.numbers[n]))) for n in first]
        said = model.predict(self.predictors.features(kernels, model))
        order = np.argsort(said.predicted, kind="stable")[:_GUESSES]
        return tuple(kernels[int(number)][1] for number in order)
