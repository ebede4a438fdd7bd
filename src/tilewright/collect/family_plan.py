"""What `collect` measures of one family: drawn configurations, and neighbours of what was
predicted badly, written into the journal before they are measured.

With `--adaptive` it goes in rounds of 100 kernels at least, fewer where that is all that is left.
At the start of a round the family's model is fitted on all that is known of the device class; it
then predicts every kernel of the round before that is measured. A kernel whose time was more than
10 % off spawns neighbours, the worst first: the configuration with one number changed by a small
factor, in the same settings, and the same configuration with one knob changed. They take at most
half of the next rounds, so that coverage goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from tilewright.collect.design import CollectRequest
from tilewright.collect.planned import Batch, Journal, Planned, candidates_of
from tilewright.core.codec import canonical_json, digest
from tilewright.core.errors import ModelError
from tilewright.core.events import EventSink, Note, Stage, discard
from tilewright.core.forms import PLAIN, stored_in
from tilewright.core.predictions import CollectRound
from tilewright.core.records import Candidate, Placement
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALVES
from tilewright.kernels.half_forms import alone_in_halves
from tilewright.kernels.registry import applicable, implementation
from tilewright.kernels.spaces import TaskSpace, default_candidate
from tilewright.models.configurations import Numbers, configurations_of, drawn, neighbours
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.collected import family_of
from tilewright.predict.family_models import FamilyModel, fit_kernels
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.predict.processes import informative
from tilewright.predict.regressors import Trees
from tilewright.store.base import Store

Batches = Iterator[tuple[Task, list[Candidate]]]
"""Tasks with their candidates; what was yielded is measured before the next one is asked for."""

_OFFERED, _MOST_OFFERED = 10, 600
"""Configurations to choose from per sample, and at most."""

_BESIDE = 2
"""Neighbouring settings of a kernel that was predicted badly."""

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


@dataclass(kw_only=True)
class Feedback:
    """What predictors said of the kernels of one family, and what was then measured. The first
    `accounted` entries of the journal are of earlier rounds."""

    name: str
    placement: Placement
    store: Store
    events: EventSink
    rounds: list[CollectRound]
    accounted: int
    _predictors: Predictors | None = None
    _models: dict[str, FamilyModel | None] = field(default_factory=dict[str, FamilyModel | None])
    _times_s: dict[Kernel, float] = field(default_factory=dict[Kernel, float])

    def begin_round(self, planned: Sequence[Planned]) -> None:
        """Read what was measured meanwhile, and account for the entries of the last round."""
        self._predictors, self._models = predictors_of(self.placement, self.store, discard), {}
        self._times_s = {
            (row.workload.key, row.candidate): row.latency_s for row in self._predictors.own_rows
        }
        errors = np.array([error for _, error in self._errors(planned[self.accounted :])])
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
        self.accounted = len(planned)

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

    def misses(self, planned: Sequence[Planned]) -> list[tuple[Planned, Kernel]]:
        """The kernels that were predicted badly and have no neighbours yet, the worst first."""
        done = {entry.source for entry in planned}
        found = (
            (error, entry, kernel)
            for entry in planned
            for kernel, error in self._errors([entry])
            if error > TOLERATED and kernel not in done
        )
        return [(entry, kernel) for _, entry, kernel in sorted(found, key=lambda miss: -miss[0])]

    def _errors(self, planned: Sequence[Planned]) -> Iterator[tuple[Kernel, float]]:
        for batch in (batch for entry in planned for batch in entry.batches[:1]):
            for candidate, seconds in zip(batch.candidates, batch.predicted_s, strict=True):
                kernel = (batch.workload_key, candidate)
                if seconds is not None and kernel in self._times_s:
                    yield kernel, abs(seconds / self._times_s[kernel] - 1)


@dataclass(kw_only=True)
class FamilyPlan:
    """The kernels of one family on one device, `samples` of them, and of the copies around them;
    `predictors` are those of the placement as networks use it."""

    name: str
    request: CollectRequest
    placement: Placement
    predictors: Predictors
    journal: Journal
    feedback: Feedback | None
    _planned: set[Kernel] = field(default_factory=set[Kernel])
    _texts: set[str] = field(default_factory=set[str])

    def batches(self) -> Batches:
        """What the journal holds first, then what is decided now."""
        for entry in self.journal.of(self.name):
            yield from self._of(entry)
        position = sum(entry.source is None for entry in self.journal.of(self.name))
        stream = islice(self._stream(), position, None)
        while self._left > 0:
            wanted = self._left if self.feedback is None else min(self._left, ROUND)
            end = len(self._planned) + wanted
            if self.feedback is not None:
                self.feedback.begin_round(self.journal.of(self.name))
                enough = len(self._planned) + int(SPAWNED * wanted)
                for entry in self._spawned(self.feedback):
                    yield from self._new(entry)
                    if len(self._planned) >= enough:
                        break
            while len(self._planned) < end:
                numbers = next(stream, None)
                if numbers is None:
                    return
                yield from self._new(self._drawn(numbers))
        if self.feedback is not None:
            self.feedback.begin_round(self.journal.of(self.name))

    @property
    def _left(self) -> int:
        return self.request.samples - len(self._planned)

    def _new(self, entry: Planned) -> Batches:
        self.journal.add(entry)
        yield from self._of(entry)

    def _of(self, entry: Planned) -> Batches:
        """The batches of an entry; its operator counts."""
        self._texts.add(configurations_of(self.name).text(entry.numbers))
        for number, batch in enumerate(entry.batches):
            workload = self.predictors.store.workload(batch.workload_key)
            if workload is None:
                continue
            if number == 0:
                self._planned.update((workload.key, found) for found in batch.candidates)
            yield batch.task(workload), list(batch.candidates)

    def _stream(self) -> Iterator[Numbers]:
        """Configurations in the order in which they are measured."""
        stream = drawn(self.name, self.request.seed)
        if not self.request.design.informative:
            return stream
        offered = list(islice(stream, min(_MOST_OFFERED, _OFFERED * self.request.samples)))
        self.predictors.events(Stage(name="choose", detail=f"{self.name}: among {len(offered)}"))
        return chain(self._most_telling_first(offered), stream)

    def _most_telling_first(self, offered: Sequence[Numbers]) -> Iterator[Numbers]:
        """As they were drawn where no device class knows the family."""
        kernels = {
            place: (task.workload, self._default(task))
            for place, numbers in enumerate(offered)
            for task in self._prepared(numbers)[:1]
        }
        predictors = replace(self.predictors)
        families = {family_of(workload) for workload, _ in kernels.values()}
        model = predictors.model(families.pop()) if len(families) == 1 else None
        if model is None:
            message = (
                f"{self.name} was measured on no device class, so it is not known which "
                "configurations are informative: they are measured in the order of drawing"
            )
            predictors.events(Note(message=message))
            return iter(offered)
        features = predictors.features(list(kernels.values()), model)
        count, places = min(self.request.samples, len(kernels)), list(kernels)
        chosen = informative(model, features, count, self.request.seed)
        order = dict.fromkeys([*(places[int(row)] for row in chosen), *range(len(offered))])
        return (offered[place] for place in order)

    def _default(self, task: Task) -> Candidate:
        return default_candidate(task.workload, task.forms, self.placement)[0]

    def _drawn(self, numbers: Numbers) -> Planned:
        """A configuration in default, best known and random settings, and its copies'."""
        origin = (self.request.seed, configurations_of(self.name).text(numbers))
        count = self.request.design.settings
        found: list[Batch] = []
        for task in self._tasks(numbers):
            every = candidates_of(task, self.placement, self.predictors, count, origin)
            fresh = [each for each in every if (task.workload.key, each) not in self._planned]
            found.append(self._batch(task, fresh if found else fresh[: self._left]))
        return Planned(family=self.name, numbers=numbers, batches=tuple(found))

    def _spawned(self, feedback: Feedback) -> Iterator[Planned]:
        """Neighbours of what was predicted badly, the worst first."""
        for entry, kernel in feedback.misses(self.journal.of(self.name)):
            for neighbours_of in (self._settings_beside, self._configuration_beside):
                if self._left > 0:
                    yield from neighbours_of(entry, kernel)

    def _settings_beside(self, entry: Planned, kernel: Kernel) -> Iterator[Planned]:
        key, candidate = kernel
        workload = self.predictors.store.workload(key)
        if workload is None:
            return
        found = [
            other
            for other in settings_beside(workload, candidate, self.placement)
            if (key, other) not in self._planned
        ][: min(_BESIDE, self._left)]
        if found:
            batches = (self._batch(entry.batches[0].task(workload), found),)
            yield Planned(family=self.name, numbers=entry.numbers, batches=batches, source=kernel)

    def _configuration_beside(self, entry: Planned, kernel: Kernel) -> Iterator[Planned]:
        text = configurations_of(self.name).text
        for numbers in neighbours(self.name, entry.numbers, self.request.seed):
            tasks = [] if text(numbers) in self._texts else self._tasks(numbers)
            for task in tasks[:1]:
                same = carried(kernel[1], task.workload, self.placement)
                batches = (self._batch(task, [same or self._default(task)]),)
                yield Planned(family=self.name, numbers=numbers, batches=batches, source=kernel)
                return

    def _tasks(self, numbers: Numbers) -> list[Task]:
        """The operator itself, then the copies into other layouts beside it; none where cleaning
        leaves no operator (a transpose that moves nothing)."""
        tasks = self._prepared(numbers)
        self.predictors.store.add_workloads([task.workload for task in tasks])
        return tasks

    def _prepared(self, numbers: Numbers) -> list[Task]:
        text = configurations_of(self.name).text(numbers)
        found = prepare_outline(text, self.request.options, self.placement).tasks.values()
        tasks = sorted(found, key=lambda task: not is_operator(task.workload))
        if not tasks or not is_operator(tasks[0].workload):
            return []
        if self.placement.precision in HALVES:
            first = tasks[0]
            forms = alone_in_halves(first.workload, first.forms, self.placement)
            tasks[0] = replace(first, key=(first.workload.key, forms), forms=forms)
        return tasks

    def _batch(self, task: Task, candidates: Sequence[Candidate]) -> Batch:
        predicted_s: tuple[float | None, ...] = (None,) * len(candidates)
        if self.feedback is not None:
            predicted_s = self.feedback.predicted_s(task.workload, candidates)
        return Batch(
            workload_key=task.workload.key,
            name=task.name,
            forms=task.forms,
            candidates=tuple(candidates),
            predicted_s=predicted_s,
        )


def is_operator(workload: Workload) -> bool:
    """Whether a task is the operator itself, not a copy into another layout beside it."""
    return bool(workload.steps) and workload.anchor_name != "identity"


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
    target, resources = placement.target, placement.resources
    plain = (PLAIN,) * (len(workload.arguments) + 1)
    layouts = tuple(stored_in(form, None) for form in candidate.forms)
    if spec not in applicable(workload, target, resources) or layouts not in (
        plain,
        *spec.port_forms(workload, target, resources),
    ):
        return None
    space = TaskSpace(workload=workload, forms=candidate.forms, placement=placement, spec=spec)
    number = space.part.knobs.number(dict(candidate.settings))
    return candidate if number is not None and space.part.knobs.valid(number) else None
