"""`collect`: operators in many configurations and settings, measured for predictors to learn from.

What is measured follows from the request alone, in a fixed order, so a repeated command goes on
where the last one stopped and never measures anything twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, Note, Stage, TuningProgress
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.predictions import CollectResult
from tilewright.core.protocols import MeasurementStore
from tilewright.core.records import Candidate, Device, Failure, Outcome, Run
from tilewright.graph.workload import Workload
from tilewright.hardware.meters import Meter, named_meter
from tilewright.kernels.registry import implementation
from tilewright.measure.base import Measurer
from tilewright.models import ModelOptions
from tilewright.models.configurations import FAMILIES, drawn, family_named
from tilewright.session.interrupts import graceful_interrupt
from tilewright.session.measuring import opened, opened_with
from tilewright.session.preparation import Task, prepare
from tilewright.session.protocols import kernel_protocol
from tilewright.session.shelf import measured_peaks
from tilewright.store.database import SqliteStore
from tilewright.tune.budget import Budget, Spending
from tilewright.tune.space import TaskSpace, default_candidate, spaces

PROBE = "op:conv2d[c=64,h=28,k=3,out=64,pad=1]"
"""Timed every now and then in its default settings: what the machine's speed did meanwhile."""

_PROBE_EVERY = 25
_SLOW_S = 0.05
"""Candidates slower than this get a single sample."""

_USUAL, _ANYWHERE = 0.75, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """What is to be measured: random configurations of operator `families`, `samples` candidates
    of each, and every task of `models`. A configuration comes in its default settings and in
    `settings` random ones."""

    families: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    samples: int = 200
    settings: int = 3
    budget: Budget
    options: ModelOptions
    seed: int = 0

    @property
    def key(self) -> str:
        """Identity of what is asked for, whatever the budget."""
        return digest(
            canonical_json(
                ["collect", self.families, self.models, self.samples, self.settings, self.seed]
            )
        )


def collect_request(
    families: Sequence[str],
    models: Sequence[str],
    *,
    samples: int,
    settings: int,
    budget: Budget,
    options: ModelOptions,
) -> CollectRequest:
    """The request, checked; `all` stands for every family. Raises UsageError for an unknown family
    and for numbers below 1."""
    names = tuple(FAMILIES) if "all" in families else tuple(dict.fromkeys(families))
    for name in names:
        family_named(name)
    if samples < 1 or settings < 0:
        raise UsageError(f"--samples {samples} and --settings {settings} make no sense together.")
    return CollectRequest(
        families=names,
        models=tuple(models),
        samples=samples,
        settings=settings,
        budget=budget,
        options=options,
        seed=options.seed,
    )


@dataclass(slots=True)
class _Count:
    measured: int = 0
    known: int = 0
    failures: int = 0

    @property
    def all(self) -> int:
        return self.measured + self.known + self.failures


Measurers = Callable[[Device, int], Measurer]
"""Opens the measurer of a device, with a seed."""


@dataclass(slots=True, kw_only=True)
class Collector:
    """One `collect` command. With a `meter`, by which `measurers` then tell energy, too, kernels
    without energy are not known yet."""

    device: Device
    store: SqliteStore
    events: EventSink
    measurers: Measurers = opened
    meter: Meter | None = None
    _count: _Count = field(default_factory=_Count)
    _wants_energy: bool = False

    def run(self, request: CollectRequest) -> CollectResult:
        """Measure what is asked for and not known yet, until the budget is spent or Ctrl-C.

        Raises UsageError for an unknown family, and what loading a model raises.
        """
        began_s = time.monotonic()
        lost = self.meter.unavailable() if self.meter is not None else None
        if lost is not None:
            self.events(Note(message=f"No energy is measured: {lost.reason}"))
        self._wants_energy = self.meter is not None and lost is None
        self.store.add_device(self.device)
        earlier = self.store.runs(request.key, self.device.class_key)
        spending = Spending(request.budget, earlier, began_s=began_s)
        run = self.store.begin_run(
            Run(
                command="collect",
                model=", ".join([*request.families, *request.models]),
                network_key=request.key,
                device_class=self.device.class_key,
                seed=request.seed,
                state="running",
                created_at=time.time(),
            )
        )
        state = "interrupted"
        try:
            state = self._collect(request, spending, run)
        finally:
            self.store.update_run(
                replace(
                    run,
                    state=state,
                    spent_s=spending.elapsed_s,
                    measurements=self._count.measured,
                    failures=self._count.failures,
                )
            )
        if state == "interrupted":
            raise KeyboardInterrupt
        return CollectResult(
            samples=self._count.measured,
            known=self._count.known,
            failures=self._count.failures,
            complete=state == "done",
            elapsed_s=spending.elapsed_s,
        )

    def _collect(self, request: CollectRequest, spending: Spending, run: Run) -> str:
        """Go through all tasks; the state this run ended in."""
        plan = self._plan(request)
        if spending.exhausted:
            return "spent"
        with (
            graceful_interrupt() as interruption,
            self.measurers(self.device, request.seed) as measurer,
        ):
            measurer.start()
            measured_peaks(self.store, self.device, measurer)
            probe = _Probe(self.device, request.options)
            for number, (task, candidates) in enumerate(plan):
                if interruption.requested:
                    return "interrupted"
                if spending.exhausted:
                    return "spent"
                self.store.add_workload(task.workload)
                wanted = self._unknown(task.workload, candidates)
                if wanted and probe.is_due(number):
                    self._measure(probe.task.workload, [probe.candidate], measurer, run, spending)
                self._measure(task.workload, wanted, measurer, run, spending)
                self._tell(task, spending)
        return "done"

    def _plan(self, request: CollectRequest) -> Iterator[tuple[Task, list[Candidate]]]:
        """The tasks with their candidates, families in turn, then the models' own."""
        streams = [
            self._of_family(name, drawn(name, request.seed), request) for name in request.families
        ]
        return chain(_in_turn(streams), *(self._of_model(name, request) for name in request.models))

    def _of_family(
        self, name: str, texts: Iterator[str], request: CollectRequest
    ) -> Iterator[tuple[Task, list[Candidate]]]:
        """Candidates of one family, `samples` in all, and of the copies around its kernels."""
        planned = 0
        for text in texts:
            for task in prepare(text, request.options, self.device).tasks.values():
                candidates = _candidates(task, self.device, request, text)
                if _is_anchor(task):
                    candidates = candidates[: request.samples - planned]
                    planned += len(candidates)
                yield task, candidates
            if planned >= request.samples:
                return

    def _of_model(
        self, name: str, request: CollectRequest
    ) -> Iterator[tuple[Task, list[Candidate]]]:
        self.events(Stage(name="import", detail=name))
        for task in prepare(name, request.options, self.device).tasks.values():
            yield task, _candidates(task, self.device, request, name)

    def _unknown(self, workload: Workload, candidates: Sequence[Candidate]) -> list[Candidate]:
        known = known_candidates(self.store, workload, self.device, energy=self._wants_energy)
        wanted = [candidate for candidate in candidates if candidate not in known]
        self._count.known += len(candidates) - len(wanted)
        return wanted

    def _measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        measurer: Measurer,
        run: Run,
        spending: Spending,
    ) -> None:
        def keep(outcome: Outcome) -> None:
            self.store.add([outcome])
            spending.count += 1
            if isinstance(outcome, Failure):
                self._count.failures += 1
            else:
                self._count.measured += 1

        if candidates:
            measurer.measure(
                workload,
                candidates,
                kernel_protocol(self.device),
                run_id=run.id,
                give_up_s=_SLOW_S,
                finished=keep,
            )

    def _tell(self, task: Task, spending: Spending) -> None:
        left_s = spending.remaining_s
        self.events(
            TuningProgress(
                task=task.name,
                measurements=self._count.measured,
                failures=self._count.failures,
                best_s=None,
                network_s=None,
                remaining_s=left_s if left_s < float("inf") else None,
            )
        )


def collector_of(
    device: Device, store: SqliteStore, events: EventSink, meter: str | None
) -> Collector:
    """What collects; with the name of a `meter` also energy. Raises UsageError for another name."""
    if meter is None:
        return Collector(device=device, store=store, events=events)
    found = named_meter(meter)
    measurers = opened_with(found)
    return Collector(device=device, store=store, events=events, measurers=measurers, meter=found)


class _Probe:
    """One kernel of this machine that is timed again and again."""

    def __init__(self, device: Device, options: ModelOptions) -> None:
        tasks = prepare(PROBE, options, device).tasks.values()
        self.task = next(task for task in tasks if _is_anchor(task))
        self.candidate = default_candidate(self.task.workload, self.task.layouts, device)[0]

    def is_due(self, number: int) -> bool:
        """Whether the probe is timed before the task of this number."""
        return number % _PROBE_EVERY == 0


def known_candidates(
    store: MeasurementStore, workload: Workload, device: Device, *, energy: bool = False
) -> frozenset[Candidate]:
    """What was tried of a workload on this device class, failures included; with `energy` less
    what has a time and no energy."""
    return frozenset(
        outcome.candidate
        for outcome in store.outcomes(workload.key, device.class_key)
        if not energy
        or isinstance(outcome, Failure)
        or (outcome.energy is not None and outcome.energy.energy_j is not None)
    )


def _is_anchor(task: Task) -> bool:
    """Whether a task is the operator itself, not a copy into another layout beside it."""
    return bool(task.workload.steps) and task.workload.anchor_name != "identity"


def _in_turn(
    streams: Sequence[Iterator[tuple[Task, list[Candidate]]]],
) -> Iterator[tuple[Task, list[Candidate]]]:
    """One of each stream after the other, until all are empty."""
    left = list(streams)
    while left:
        for stream in list(left):
            found = list(islice(stream, 1))
            if found:
                yield found[0]
            else:
                left.remove(stream)


def _candidates(
    task: Task, device: Device, request: CollectRequest, origin: str
) -> list[Candidate]:
    """The default candidate in the layouts a network would have, then random ones of any
    implementation: half of them in these layouts, the others in the operator's own or in any."""
    usual = _usual_layouts(task, device)
    found = {default_candidate(task.workload, usual, device)[0]: None}
    random = np.random.default_rng([request.seed, int(digest(origin), 16) % 2**32])
    for _ in range(request.settings):
        layouts = usual if random.random() < _USUAL else task.layouts
        offered = spaces(task.workload, layouts, device)
        space = offered[int(random.integers(len(offered)))]
        if random.random() < _ANYWHERE:
            space = _elsewhere(space, random)
        number = int(space.numbers[int(random.integers(len(space.numbers)))])
        found.setdefault(space.part.candidate(number))
    return list(found)


def _usual_layouts(task: Task, device: Device) -> tuple[str, ...]:
    """What the default implementation would read and write inside a network; a single operator's
    own layouts are those of a network's inputs and outputs."""
    chosen = default_candidate(task.workload, task.layouts, device)[0]
    return implementation(chosen.implementation).port_layouts(task.workload, device)[0]


def _elsewhere(space: TaskSpace, random: np.random.Generator) -> TaskSpace:
    """The same implementation in any layouts that it offers."""
    ports = space.spec.port_layouts(space.workload, space.device)
    other = TaskSpace(
        workload=space.workload,
        layouts=ports[int(random.integers(len(ports)))],
        device=space.device,
        spec=space.spec,
    )
    return other if len(other.numbers) else space
