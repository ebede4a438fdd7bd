"""`collect`: operators in many configurations and settings, measured for predictors to learn from.

What was decided to be measured is written into a journal first, so a repeated command goes on where
the last one stopped and never measures anything twice.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

from tilewright.collect.design import CollectRequest
from tilewright.collect.family_plan import Batches, FamilyPlan, Feedback, is_operator
from tilewright.collect.planned import Journal, candidates_of, journal_of
from tilewright.collect.shares import heaviest
from tilewright.core.budget import Budget
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, Note, Stage, TuningProgress
from tilewright.core.handoffs import HandoffSamples, nobody_measures
from tilewright.core.predictions import CollectedShare, CollectResult, CollectRound
from tilewright.core.records import Candidate, Failure, Outcome, Placement, Run
from tilewright.core.signals import graceful_interrupt
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.hardware.holding import Held, holding
from tilewright.hardware.meters import Meter, meter_of
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.base import Measurer
from tilewright.measure.circumstances import PROBE, Circumstances
from tilewright.measure.contention import keep_contention
from tilewright.measure.handoffs import keep_handoffs
from tilewright.measure.targeting import measured_peaks, open_measurer_under
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.store.base import Store

_PROBE_EVERY = 25
_SLOW_S = 0.05
"""Candidates slower than this get a single sample."""

Wanted = Iterator[tuple[str, Task, list[Candidate]]]
"""Tasks with their candidates, and the name of the network that each is of, empty for none."""

Measurers = Callable[[Circumstances, int], Measurer]
"""Opens the measurer of a place, with a seed."""

Holds = Callable[[Iterable[Held], Sequence[int]], AbstractContextManager[None]]
"""Keeps controls at values for these CPUs, while a block runs."""


@dataclass(slots=True, kw_only=True)
class Collector:
    """One `collect` command, in every place in turn: each gets an equal part of the budget that is
    left when it begins. With a `meter`, by which `measurers` then tell energy, too, kernels without
    energy are not known yet. `holds` keeps controls of the machine at their values, `part_handoffs`
    measures what is handed over between processes.

    `count` has candidates by what became of them: of operators, which were asked for by number,
    those measured, known and failed; `beside`, copies between layouts and probes of the machine's
    speed, and which of these failed.
    """

    places: Sequence[Circumstances]
    store: Store
    events: EventSink
    measurers: Measurers = open_measurer_under
    holds: Holds = holding
    meter: Meter | None = None
    part_handoffs: HandoffSamples = nobody_measures
    count: Counter[str] = field(default_factory=Counter[str])
    rounds: list[CollectRound] = field(default_factory=list[CollectRound])
    shares: list[CollectedShare] = field(default_factory=list[CollectedShare])
    wants_energy: bool = False

    def run(self, request: CollectRequest) -> CollectResult:
        """Measure what is asked for and not known yet, until the budget is spent or Ctrl-C.

        Raises what loading a model raises.
        """
        began_s = time.monotonic()
        lost = self.meter.unavailable() if self.meter is not None else None
        if lost is not None:
            self.events(Note(message=f"No energy is measured: {lost.reason}"))
        self.wants_energy = self.meter is not None and lost is None
        earlier = [
            run
            for place in self.places
            for run in self.store.runs(request.key, place.placement.key)
        ]
        budget = Budget(request.budget, earlier, began_s=began_s)
        states: list[str] = []
        for number, place in enumerate(self.places):
            with budget.phase("collect", keep=1 - 1 / (len(self.places) - number)):
                states.append(self._recorded(request, place, budget))
            if states[-1] == "interrupted":
                raise KeyboardInterrupt
        return CollectResult(
            samples=self.count["measured"],
            beside=self.count["beside"] + self.count["beside failed"],
            known=self.count["known"],
            failures=self.count["failed"],
            complete=all(state == "done" for state in states),
            elapsed_s=budget.elapsed_s,
            rounds=tuple(self.rounds),
            shares=tuple(self.shares),
        )

    def _recorded(self, request: CollectRequest, place: Circumstances, budget: Budget) -> str:
        """Collect in one place, with a row of what that spent; the state it ended in."""
        placement = place.placement
        self.store.add_device(placement.device)
        before, before_s = Counter(self.count), budget.elapsed_s
        run = self.store.begin_run(
            Run(
                command="collect",
                model=", ".join([*request.families, *request.models]),
                network_key=request.key,
                device_class=placement.device.class_key,
                resources=placement.resources,
                seed=request.seed,
                state="running",
                created_at=time.time(),
            )
        )
        state = "interrupted"
        try:
            visit = _Visit(collector=self, request=request, place=place, budget=budget, run=run)
            state = visit.collect()
        finally:
            spent = self.count - before
            self.store.update_run(
                replace(
                    run,
                    state=state,
                    spent_s=budget.elapsed_s - before_s,
                    measurements=spent["measured"] + spent["beside"],
                    failures=spent["failed"] + spent["beside failed"],
                )
            )
        return state


def collector_of(
    places: Sequence[Circumstances],
    store: Store,
    events: EventSink,
    meter: str | None,
    part_handoffs: HandoffSamples = nobody_measures,
) -> Collector:
    """What collects; with the name of a `meter` also energy. Raises UsageError for another name,
    and for a meter that would read neighbours, too."""
    plain = Collector(places=places, store=store, events=events, part_handoffs=part_handoffs)
    if meter is None:
        return plain
    if any(place.neighbours for place in places):
        raise UsageError(
            "a meter measures the whole machine, including the copies that --neighbours runs.",
            hint="Use --power with --neighbours 0.",
        )
    found = meter_of(meter, places[0].placement.target)
    measurers = partial(open_measurer_under, meter=found)
    return replace(plain, measurers=measurers, meter=found)


@dataclass(kw_only=True)
class _Visit:
    """The part of a `collect` command in one place."""

    collector: Collector
    request: CollectRequest
    place: Circumstances
    budget: Budget
    run: Run

    def collect(self) -> str:
        """Go through all tasks; the state this run ended in. Workers start with the first kernel
        that is not known; one kernel of this machine is timed again and again meanwhile."""
        opened: tuple[Measurer, Kernel] | None = None
        with graceful_interrupt() as interruption, ExitStack() as stack:
            for number, (model, task, candidates) in enumerate(self._plan()):
                if interruption():
                    return "interrupted"
                wanted = self._unknown(task.workload, candidates)
                if not wanted:
                    continue
                if self.budget.exhausted:
                    return "spent"
                if opened is None:
                    opened = self._begun(stack)
                measurer, (workload, candidate) = opened
                self.collector.store.add_workload(task.workload)
                if number % _PROBE_EVERY == 0:
                    self._measure(measurer, workload, [candidate], beside=True)
                beside = task.workload is workload or not is_operator(task.workload)
                self._measure(measurer, task.workload, wanted, model=model, beside=beside)
                self.collector.events(
                    TuningProgress(
                        task=task.name,
                        measurements=self.collector.count["measured"],
                        failures=self.collector.count["failed"],
                        best_s=None,
                        network_s=None,
                        **self.budget.told,
                    )
                )
        return "done"

    def _begun(self, stack: ExitStack) -> tuple[Measurer, Kernel]:
        """Hold controls and start the workers, until the stack ends, and look at the device's
        peaks."""
        store, placement = self.collector.store, self.place.placement
        stack.enter_context(self.collector.holds(self.place.held, placement.binding.cpus))
        measurer = stack.enter_context(self.collector.measurers(self.place, self.request.seed))
        measurer.start()
        measured_peaks(store, placement, measurer)
        if self.place.neighbours and not self.place.held:
            keep_contention(store, self.place.usual)
            keep_handoffs(
                store, self.place.usual, self.collector.part_handoffs, self.collector.events
            )
        usual = ModelOptions()
        placement = replace(placement, precision=usual.precision)
        network = prepare(PROBE, usual, placement)
        task = next(task for task in network.tasks.values() if is_operator(task.workload))
        store.add_workload(task.workload)
        probe = default_candidate(task.workload, task.forms, placement)[0]
        return measurer, (task.workload, probe)

    def _plan(self) -> Wanted:
        """The tasks with their candidates, families in turn, then the models' own."""
        store, events, request = self.collector.store, self.collector.events, self.request
        placement = self.place.placement
        journal = journal_of(store, placement, request.key, events)
        predictors = predictors_of(self.place.usual, store, events)
        plans = [
            FamilyPlan(
                name=name,
                request=request,
                placement=placement,
                predictors=predictors,
                journal=journal,
                feedback=Feedback(
                    name=name,
                    placement=placement,
                    store=store,
                    events=events,
                    rounds=self.collector.rounds,
                    accounted=len(journal.of(name)),
                )
                if request.design.adaptive
                else None,
            )
            for name in request.families
        ]
        drawn = (("", *found) for found in _in_turn([plan.batches() for plan in plans]))
        models = (self._of_model(name, predictors, journal) for name in request.models)
        return chain(drawn, *models)

    def _of_model(self, name: str, predictors: Predictors, journal: Journal) -> Wanted:
        placement, request = self.place.placement, self.request
        self.collector.events(Stage(name="import", detail=name))
        network = prepare(name, request.options, placement)
        tasks: Iterable[Task] = network.tasks.values()
        if request.design.share < 1:
            found = heaviest(name, network, request.design.share, predictors, journal)
            tasks, told = found.tasks, found.told
            self.collector.shares.append(told)
            detail = (
                f"{told.model}: {told.tasks} of {told.tasks_of_network} tasks make up "
                f"{told.share:.0%} of its time, of which {told.measured} were measured before"
            )
            self.collector.events(Stage(name="share", detail=detail))
        for task in tasks:
            count, seed = request.design.settings, (request.seed, name)
            every = candidates_of(task, placement, predictors, count, seed)
            yield name, task, every

    def _unknown(self, workload: Workload, candidates: Sequence[Candidate]) -> list[Candidate]:
        collector, placement = self.collector, self.place.placement
        known = known_candidates(
            collector.store, workload, placement, energy=collector.wants_energy
        )
        wanted = [candidate for candidate in candidates if candidate not in known]
        if is_operator(workload):
            collector.count["known"] += len(candidates) - len(wanted)
        return wanted

    def _measure(
        self,
        measurer: Measurer,
        workload: Workload,
        candidates: Sequence[Candidate],
        *,
        beside: bool,
        model: str = "",
    ) -> None:
        """Time candidates, at least one, and keep what comes of each, as of this network."""
        measured, failed = ("beside", "beside failed") if beside else ("measured", "failed")

        def keep(outcome: Outcome) -> None:
            self.collector.store.add([replace(outcome, model=model)])
            self.budget.measured()
            self.collector.count[failed if isinstance(outcome, Failure) else measured] += 1

        measurer.measure(
            workload,
            candidates,
            self.place.protocol,
            run_id=self.run.id,
            give_up_s=_SLOW_S,
            finished=keep,
        )


def known_candidates(
    store: Store, workload: Workload, placement: Placement, *, energy: bool = False
) -> frozenset[Candidate]:
    """What was tried of a workload on this device class, failures included; with `energy` less
    what has a time and no energy."""
    return frozenset(
        outcome.candidate
        for outcome in store.outcomes(workload.key, placement.key)
        if not energy
        or isinstance(outcome, Failure)
        or (outcome.energy is not None and outcome.energy.energy_j is not None)
    )


def _in_turn(streams: Sequence[Batches]) -> Iterator[tuple[Task, list[Candidate]]]:
    """One of each stream after the other, until all are empty."""
    left = deque(streams)
    while left:
        stream = left.popleft()
        for found in islice(stream, 1):
            yield found
            left.append(stream)
