"""What `collect` measures of one family: drawn configurations, and neighbours of what was
predicted badly, written into the journal before they are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from tilewright.collect.adaptive import (
    ROUND,
    SPAWNED,
    Feedback,
    Kernel,
    Miss,
    carried,
    settings_beside,
)
from tilewright.collect.design import CollectRequest
from tilewright.collect.planned import Batch, Journal, Planned
from tilewright.collect.schedule_settings import candidates_of
from tilewright.core.events import Note, Stage
from tilewright.core.records import Candidate, Placement
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import default_candidate
from tilewright.models.configurations import Numbers, configurations_of, drawn, neighbours
from tilewright.plan.preparation import prepare_outline
from tilewright.predict.collected import family_of
from tilewright.predict.modelling import Predictors
from tilewright.predict.processes import informative

Batches = Iterator[tuple[Task, list[Candidate]]]
"""Tasks with their candidates; what was yielded is measured before the next one is asked for."""

_OFFERED, _MOST_OFFERED = 10, 600
"""Configurations to choose from per sample, and at most."""

_BESIDE = 2
"""Neighbouring settings of a kernel that was predicted badly."""


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
        entries = self.journal.of(self.name)
        position = sum(entry.source is None for entry in entries)
        stream = islice(self._stream(), position, None)
        accounted = len(entries)
        while self._left > 0:
            wanted = self._left if self.feedback is None else min(self._left, ROUND)
            end = len(self._planned) + wanted
            if self.feedback is not None:
                accounted = self.feedback.begin_round(self.journal.of(self.name), accounted)
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
            self.feedback.begin_round(self.journal.of(self.name), accounted)

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
        kernels: dict[int, tuple[Workload, Candidate]] = {}
        for place, numbers in enumerate(offered):
            for task in self._prepared(numbers)[:1]:
                kernels[place] = (task.workload, self._default(task))
        predictors = replace(self.predictors)
        families = {family_of(workload) for workload, _ in kernels.values()}
        model = predictors.model(families.pop()) if len(families) == 1 else None
        if model is None:
            message = (
                f"{self.name} was measured on no device class, so nothing says which "
                "configurations are informative: they are measured in the order of drawing"
            )
            predictors.events(Note(message=message))
            return iter(offered)
        features = predictors.features(list(kernels.values()), model)
        count = min(self.request.samples, len(kernels))
        places = list(kernels)
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
        for miss in feedback.misses(self.journal.of(self.name)):
            if self._left > 0:
                yield from self._settings_beside(miss)
            if self._left > 0:
                yield from self._configuration_beside(miss)

    def _settings_beside(self, miss: Miss) -> Iterator[Planned]:
        batch, (key, candidate) = miss.entry.batches[0], miss.kernel
        workload = self.predictors.store.workload(key)
        if workload is None:
            return
        found = [
            other
            for other in settings_beside(workload, candidate, self.placement)
            if (key, other) not in self._planned
        ][: min(_BESIDE, self._left)]
        if found:
            batches = (self._batch(batch.task(workload), found),)
            yield Planned(
                family=self.name, numbers=miss.entry.numbers, batches=batches, source=miss.kernel
            )

    def _configuration_beside(self, miss: Miss) -> Iterator[Planned]:
        text = configurations_of(self.name).text
        for numbers in neighbours(self.name, miss.entry.numbers, self.request.seed):
            if text(numbers) in self._texts:
                continue
            for task in self._tasks(numbers)[:1]:
                same = carried(miss.kernel[1], task.workload, self.placement)
                batches = (self._batch(task, [same or self._default(task)]),)
                yield Planned(
                    family=self.name, numbers=numbers, batches=batches, source=miss.kernel
                )
                return

    def _tasks(self, numbers: Numbers) -> list[Task]:
        """The operator itself, then the copies into other layouts beside it; none where cleaning
        leaves no operator (a transpose that moves nothing)."""
        tasks = self._prepared(numbers)
        self.predictors.store.add_workloads([task.workload for task in tasks])
        return tasks

    def _prepared(self, numbers: Numbers) -> list[Task]:
        text = configurations_of(self.name).text(numbers)
        tasks = list(prepare_outline(text, self.request.options, self.placement).tasks.values())
        tasks.sort(key=lambda task: not is_operator(task.workload))
        return tasks if tasks and is_operator(tasks[0].workload) else []

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
