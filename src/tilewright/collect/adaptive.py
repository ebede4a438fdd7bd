"""`collect --adaptive`: where the predictor is wrong, more is measured.

Rounds of 100 kernels at least, fewer where that is all that is left. At the start of a round the
family's model is fitted on all that is known of the device class; it then predicts every kernel of
the round before that is measured. A kernel whose time was more than 10 % off spawns neighbours, the
worst first: the configuration with one number changed by a small factor, in the same settings, and
the same configuration with one knob changed. They take at most half of the next rounds, so that
coverage goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from tilewright.collect.planned import Planned
from tilewright.core.errors import ModelError
from tilewright.core.events import EventSink, Stage, discard
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.forms import PLAIN
from tilewright.core.predictions import CollectRound
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import applicable, implementation
from tilewright.kernels.spaces import TaskSpace
from tilewright.predict.collected import family_of
from tilewright.predict.family_models import FamilyModel, fit_kernels
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.predict.regressors import Trees
from tilewright.store.base import Store

ROUND = 100
"""Kernels of a family between two fits."""

TOLERATED = 0.1
"""Relative error of a prediction above which a kernel spawns neighbours."""

SPAWNED = 0.5
"""Part of a round that neighbours take at most."""

_TREES = Trees(rounds=100, rate=0.15, depth=6, least_weight=2.0, column_share=0.3)
"""Smaller than a family's model that is kept: it is fitted again for every round."""

Kernel = tuple[str, Candidate]
"""Workload key, candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A planned kernel whose time was predicted badly."""

    entry: Planned
    kernel: Kernel
    error: float


@dataclass(kw_only=True)
class Feedback:
    """What predictors said of the kernels of one family, and what was then measured."""

    name: str
    placement: Placement
    store: Store
    events: EventSink
    rounds: list[CollectRound] = field(default_factory=list[CollectRound])
    _predictors: Predictors | None = None
    _models: dict[str, FamilyModel | None] = field(default_factory=dict[str, FamilyModel | None])
    _times_s: dict[Kernel, float] = field(default_factory=dict[Kernel, float])

    def begin_round(self, planned: Sequence[Planned], before: int) -> int:
        """Read what was measured meanwhile, and account for the entries from `before` on, those of
        the last round. How many entries there are now."""
        self._predictors, self._models = predictors_of(self.placement, self.store, discard), {}
        self._times_s = {
            (row.workload.key, row.candidate): row.latency_s for row in self._predictors.own_rows
        }
        errors = np.array([error for _, error in self._errors(planned[before:])])
        if len(errors):
            last = CollectRound(
                family=self.name,
                device_class=str(self.placement.key),
                kernels=len(errors),
                mape=float(np.mean(errors)),
                above=float(np.mean(errors > TOLERATED)),
            )
            self.rounds.append(last)
            detail = (
                f"{self.name}: predicted {last.kernels} kernels before measuring them, mean error "
                f"{last.mape:.1%}, {last.above:.0%} above {TOLERATED:.0%}"
            )
            self.events(Stage(name="round", detail=detail))
        return len(planned)

    def predicted_s(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> tuple[float | None, ...]:
        """Seconds of each candidate by the round's model, which learns from this very class's rows;
        None where these are too few."""
        family, predictors = family_of(workload), self._predictors
        if predictors is None or not candidates:
            return (None,) * len(candidates)
        if family not in self._models:
            self._models[family] = None
            with suppress(ModelError):
                data = predictors.training_set(family)
                if data.device_class == str(self.placement.key):
                    self._models[family] = fit_kernels(data, trees=_TREES)
        model = self._models[family]
        if model is None:
            return (None,) * len(candidates)
        kernels = [(workload, candidate) for candidate in candidates]
        return tuple(model.predict(predictors.features(kernels, model)).predicted.tolist())

    def misses(self, planned: Sequence[Planned]) -> list[Miss]:
        """The kernels that were predicted badly and have no neighbours yet, the worst first."""
        done = {entry.source for entry in planned}
        found = [
            Miss(entry=entry, kernel=kernel, error=error)
            for entry in planned
            for kernel, error in self._errors([entry])
            if error > TOLERATED and kernel not in done
        ]
        return sorted(found, key=lambda miss: -miss.error)

    def _errors(self, planned: Sequence[Planned]) -> Iterator[tuple[Kernel, float]]:
        for batch in (batch for entry in planned for batch in entry.batches[:1]):
            for candidate, seconds in zip(batch.candidates, batch.predicted_s, strict=True):
                kernel = (batch.workload_key, candidate)
                if seconds is not None and kernel in self._times_s:
                    yield kernel, abs(seconds / self._times_s[kernel] - 1)


def settings_beside(
    workload: Workload, candidate: Candidate, placement: Placement
) -> list[Candidate]:
    """The candidate with one knob at another value, those next to it first, in an order of knobs
    that follows from the kernel; none where the settings are of no space of ours."""
    space = TaskSpace(
        workload=workload,
        forms=candidate.forms,
        placement=placement,
        spec=implementation(candidate.implementation),
    )
    knobs = space.part.knobs
    number = knobs.number(dict(candidate.settings))
    if number is None:
        return []
    near = knobs.neighbours(number)[: 2 * len(knobs.knobs)]
    text = canonical_json([workload.key, candidate.settings, candidate.forms])
    order = np.random.default_rng(int(digest(text), 16) % 2**32).permutation(len(near))
    return [space.part.candidate(near[int(place)]) for place in order]


def carried(candidate: Candidate, workload: Workload, placement: Placement) -> Candidate | None:
    """The same settings for a neighbouring configuration; None where they are not valid there."""
    spec = implementation(candidate.implementation)
    if spec not in applicable(workload, placement.target, placement.resources):
        return None
    plain = (PLAIN,) * (len(workload.arguments) + 1)
    if candidate.forms not in (
        plain,
        *spec.port_forms(workload, placement.target, placement.resources),
    ):
        return None
    space = TaskSpace(workload=workload, forms=candidate.forms, placement=placement, spec=spec)
    number = space.part.knobs.number(dict(candidate.settings))
    return candidate if number is not None and space.part.knobs.valid(number) else None
