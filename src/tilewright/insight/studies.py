"""Experiments on this device: `study subgraph`, `study tuners`, and `explain --threads`.

`study subgraph`: does tuning the fused subgraph beat tuning its bare anchor? Both levels are tuned
from nothing, each with half of the budget, a second look at the finalists included. Then every
task's two winners are timed again in turn, in the fused kernel, and both networks are built and
timed in turn. The case of an integer convolution whose epilogue narrows its result is always part
of it.

`study tuners`: regret of every tuner on stored sweeps, against the share that was measured.

`explain --threads`: the best number of threads of a network, from at most five measurements. Times
fall with the threads until they share a core, a memory channel or a barrier too many; where that
happens nobody knows beforehand, but it is rarely below half of the cores. So all of them and four
shares of them down to a half are measured, and the fastest measured one is taken: by what was
measured it is never worse than using all, whatever the curve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.output_files import write_text
from tilewright.core.predictions import ThreadsResult, ThreadTime
from tilewright.core.records import Candidate, Measurement, Placement
from tilewright.core.results import (
    SubgraphStudyResult,
    SubgraphStudyRow,
    TunerStudyResult,
    TunerStudyRow,
)
from tilewright.core.scratch import scratch_folder
from tilewright.core.signals import graceful_interrupt
from tilewright.core.timings import Speedup, speedup
from tilewright.cost.floors import Peaks
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.int8_case import int8_case, int8_forms
from tilewright.kernels.plans import with_candidates
from tilewright.kernels.spaces import MAX_ERRORS, default_candidate
from tilewright.measure import circumstances, network_timing, targeting
from tilewright.measure.base import Measurer
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare
from tilewright.search.context import SearchContext
from tilewright.search.levels import LEVELS, Level, bare_task, carried_over
from tilewright.search.sweeps.sweep import read_sweeps, replayed, shipped_sweeps
from tilewright.search.tuners.registry import DEFAULT, replayable, tuner_factory
from tilewright.search.tuning import NetworkTuner
from tilewright.search.winners import FinalistCheck
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan, ranked

_TURNS = 3
_CASE_MEASUREMENTS = 48
_CASE_KERNELS = (1, 3)
_FINISH_S = 30.0
_CASE_S = 15.0
_AGAIN_SHARE = 0.1
"""Part of a search's budget that is kept for the second look."""
Choice = dict[TaskKey, Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphStudy:
    """One study against a store and a device."""

    placement: Placement
    store: Store
    events: EventSink
    seed: int
    tuner: str = DEFAULT

    def run(self, model: str, options: ModelOptions, limit: Limit) -> SubgraphStudyResult:
        """Tune at both levels and compare; raises what `optimize` raises for bad input."""
        began_s = time.monotonic()
        self.events(Stage(name="import", detail=model))
        network = prepare(model, options, self.placement)
        cases = int8_tasks(self.placement)
        self.store.add_device(self.placement.device)
        tasks = [*network.tasks.values(), *cases.values()]
        self.store.add_workloads([t.workload for task in tasks for t in (task, bare_task(task))])
        with targeting.open_measurer(self.placement, seed=self.seed) as measurer:
            measurer.start()
            peaks = targeting.measured_peaks(self.store, self.placement, measurer)
            spent_s = time.monotonic() - began_s + _FINISH_S + 2 * _CASE_S
            half = replace(limit, seconds=max(1.0, limit.seconds - spent_s)).part(0.5)
            chosen: dict[Level, Choice] = {
                level: self._tuned(network.tasks, half, measurer, peaks, level) for level in LEVELS
            }
            case = Limit(measurements=_CASE_MEASUREMENTS, seconds=min(_CASE_S, half.seconds))
            for level in LEVELS:
                chosen[level] |= self._tuned(cases, case, measurer, peaks, level)
            self.events(Stage(name="compare", detail=f"{len(tasks)} tasks in turn"))
            rows = [self._row(task, chosen, measurer) for task in tasks]
        self.events(Stage(name="compare", detail="both networks in turn"))
        gain = self._network_gain(network, chosen)
        return SubgraphStudyResult(
            rows=tuple(rows),
            network_gain=gain.value,
            network_gain_low=gain.low,
            network_gain_high=gain.high,
        )

    def _tuned(
        self,
        tasks: Mapping[TaskKey, Task],
        limit: Limit,
        measurer: Measurer,
        peaks: Peaks,
        level: Level,
    ) -> Choice:
        """Search at one level within a limit of its own; the candidate of each fused task."""
        self.events(Stage(name="tune", detail=f"{len(tasks)} tasks at {level} level"))
        context = SearchContext(
            placement=self.placement,
            store=self.store,
            measurer=measurer,
            events=self.events,
            budget=Budget(limit),
            peaks=peaks,
            protocol=circumstances.kernel_protocol(self.placement),
            seed=self.seed,
            tuner=self.tuner,
            level=level,
            max_error=MAX_ERRORS[self.placement.precision],
            recall=False,
        )
        tuner = NetworkTuner(tasks, context)
        with graceful_interrupt() as interruption:
            context.stop = interruption
            with context.budget.phase("search", keep=_AGAIN_SHARE):
                tuner.run()
            if not interruption():
                FinalistCheck(tuner.fused, tuner.known, context, tuner.tasks).look_again()
        if interruption():
            raise KeyboardInterrupt
        return {key: self._choice(task, tuner, level) for key, task in tasks.items()}

    def _choice(self, task: Task, tuner: NetworkTuner, level: Level) -> Candidate:
        searched = bare_task(task) if level == "op" else task
        best = [m.candidate for m in ranked(tuner.known[searched.key])]
        found = (
            carried_over(best, task, self.placement) if level == "op" else next(iter(best), None)
        )
        return found or default_candidate(task.workload, task.forms, self.placement)[0]

    def _row(
        self, task: Task, chosen: Mapping[Level, Choice], measurer: Measurer
    ) -> SubgraphStudyRow:
        """Both winners of a task in the fused kernel, in turn."""
        candidates = {level: chosen[level][task.key] for level in LEVELS}
        rounds: dict[Candidate, list[Sequence[float]]] = {c: [] for c in candidates.values()}
        turn = list(rounds)
        for number in range(_TURNS):
            order = turn if number % 2 == 0 else turn[::-1]
            for outcome in measurer.measure(
                task.workload, order, circumstances.kernel_protocol(self.placement)
            ):
                self.store.add([outcome])
                if isinstance(outcome, Measurement):
                    rounds[outcome.candidate].append(outcome.samples_s)
        bare, fused = (rounds[candidates[level]] for level in LEVELS)
        gain = speedup(ours=fused, theirs=bare) if len(bare) == len(fused) == _TURNS else None
        return SubgraphStudyRow(
            task=task.name,
            op_level_s=_median(bare),
            subgraph_level_s=_median(fused),
            gain=gain.value if gain is not None else None,
            gain_low=gain.low if gain is not None else None,
            gain_high=gain.high if gain is not None else None,
        )

    def _network_gain(self, network: PreparedNetwork, chosen: Mapping[Level, Choice]) -> Speedup:
        """Op-level time / subgraph-level time of the compiled networks, timed in turn."""
        inputs = network.sample_inputs(self.seed)
        if all(chosen["op"][key] == chosen["subgraph"][key] for key in network.tasks):
            return Speedup(value=1.0, low=1.0, high=1.0)
        with scratch_folder() as folder, targeting.open_networks(self.placement) as worker:
            for level in LEVELS:
                plan = with_candidates(network.plan, chosen[level])
                worker.compile(plan, network.graph.constants, folder / level)
                worker.load(level, folder / level, plan.constant_names)
            timings = network_timing.time_together(
                {level: network_timing.network_runner(worker, level, inputs) for level in LEVELS}
            )
        return timings["subgraph"].speedup_over(timings["op"])


def _median(rounds: Sequence[Sequence[float]]) -> float | None:
    return median(chain.from_iterable(rounds)) if rounds else None


def int8_tasks(placement: Placement) -> dict[TaskKey, Task]:
    """The requantized 1×1 and 3×3 convolutions of the case, as if a network called each once."""
    found: dict[TaskKey, Task] = {}
    for kernel in _CASE_KERNELS:
        _, fused = int8_case(kernel)
        forms = int8_forms(fused, placement.target)
        key = (fused.key, forms)
        found[key] = Task(
            key=key,
            name=f"int8 case {kernel}x{kernel}",
            workload=fused,
            forms=forms,
            count=1,
            nodes=(),
        )
    return found


PAGE = "study-tuners.html"


def study_tuners(
    names: Sequence[str], sweep: Path | None, *, seeds: int, processes: int, events: EventSink
) -> TunerStudyResult:
    """Replay stored sweeps (those of the package without a file) by tuners (all that need no
    compiler without names). Raises UsageError for unknown tuners and no seeds, ModelError for no
    sweep."""
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {seeds}.")
    factories = {name: tuner_factory(name) for name in names or replayable()}
    sweeps = shipped_sweeps() if sweep is None else read_sweeps(sweep)
    for name, factory in factories.items():
        # Where nothing can be lowered a tuner may not be what its name promises.
        problem = getattr(factory(sweeps[0].task(0)), "problem", "")
        if problem:
            events(Note(message=f"{name}: {problem}"))
    events(Stage(name="replay", detail=f"{len(factories)} tuners on {len(sweeps)} sweeps"))
    jobs = [(name, index) for index in range(len(sweeps)) for name in factories]
    work = partial(_replay, sweep=sweep, seeds=seeds)
    if processes == 1:
        found = [work(job) for job in jobs]
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(work, jobs))
    return TunerStudyResult(rows=tuple(row for rows in found for row in rows))


def write_page(folder: Path, result: TunerStudyResult) -> None:
    """Write the figures as `study-tuners.html` into a folder."""
    from tilewright.report.html import render_tuner_study

    write_text(folder / PAGE, render_tuner_study(result))


def _replay(job: tuple[str, int], *, sweep: Path | None, seeds: int) -> list[TunerStudyRow]:
    name, index = job
    sweeps = shipped_sweeps() if sweep is None else read_sweeps(sweep)
    return replayed(name, tuner_factory(name), sweeps[index], seeds=seeds)


SHARES = (1.0, 7 / 8, 3 / 4, 5 / 8, 1 / 2)
_REPEATS, _WARMUP = 15, 2

Timer = Callable[[Placement], float]
"""Seconds of the network at a placement, that is, with its number of threads."""


def network_time_s(
    placement: Placement,
    *,
    model: str,
    options: ModelOptions,
    store: Store,
    settings: SettingsName,
    max_error: float,
) -> float:
    """Compile a network for a placement and time it alone."""
    network = prepare(model, options, placement)
    plan = choose_plan(network, store, placement, settings, max_error=max_error)
    with scratch_folder() as folder, targeting.open_networks(placement) as worker:
        worker.compile(plan, network.graph.constants, folder)
        worker.load("network", folder, plan.constant_names)
        inputs = network.sample_inputs(options.seed)
        return median(worker.time("network", inputs, repeats=_REPEATS, warmup=_WARMUP))


def study_threads(
    model: str,
    placement_with: Callable[[int], Placement],
    most: int,
    timer: Timer,
    events: EventSink,
) -> ThreadsResult:
    """Measure `most` threads and up to four fewer, and pick the fastest measured."""
    times_s: dict[int, float] = {}
    for count in counts_to_measure(most):
        events(Stage(name="time", detail=f"{model} with {count} threads"))
        times_s[count] = timer(placement_with(count))
    best = best_count(times_s)
    return ThreadsResult(
        model=model,
        measured=tuple(ThreadTime(threads=n, latency_s=s) for n, s in times_s.items()),
        best_threads=best,
        loss_of_all=times_s[most] / times_s[best] - 1,
    )


def counts_to_measure(most: int) -> tuple[int, ...]:
    """At most five numbers of threads, `most` first, falling: 16 → (16, 14, 12, 10, 8).

    Raises ValueError for less than one.
    """
    if most < 1:
        raise ValueError(f"{most} threads")
    return tuple(dict.fromkeys(max(1, round(share * most)) for share in SHARES))


def best_count(times_s: Mapping[int, float]) -> int:
    """The number of threads with the least time, the smaller of two equal ones. `times_s` are
    seconds by number of threads, at least one."""
    return min(times_s, key=lambda count: (times_s[count], count))
