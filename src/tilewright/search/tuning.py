"""Tuning a network's tasks within a budget, at the operator or the subgraph level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf

from tilewright.core.budget import Budget
from tilewright.core.events import EventSink, Note
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, KnobValue, Measurement, Outcome, Placement, Protocol
from tilewright.core.results import CurvePoint, TaskSearchReport
from tilewright.core.results import Trial as TrialReport
from tilewright.core.timings import speedup_apart
from tilewright.cost.floors import Peaks
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import task_floor_s
from tilewright.kernels.search_space import SearchSpace
from tilewright.kernels.spaces import ranked_defaults, search_space, too_inexact
from tilewright.measure.base import Measurer, WorkloadFeaturizer
from tilewright.search.knowledge import believed
from tilewright.search.levels import Level, bare_tasks, family_of
from tilewright.search.loop import TaskState, TuningLoop
from tilewright.search.precedents import best_elsewhere, neighbours_in_store, precedents
from tilewright.search.tuners.base import LateTuner, Tuner, TuningTask
from tilewright.search.tuners.registry import DEFAULT, make_tuner
from tilewright.store.base import Store
from tilewright.store.known_candidates import known_outcomes

_LONGEST = 120

Guess = Callable[[Workload, tuple[Form, ...]], Sequence[Candidate]]


def no_guess(_workload: Workload, _forms: tuple[Form, ...]) -> Sequence[Candidate]:
    """Nothing is known beforehand."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTerms:
    """What holds for a whole run: how kernels are timed, the seed, the run's row, who listens,
    which tuner searches, at which level; implementations with an error bound above `max_error` are
    out, as are their records. `guess` tells settings that are worth a try first, for a workload in
    layouts."""

    protocol: Protocol
    seed: int
    run_id: int | None
    events: EventSink
    tuner: str = DEFAULT
    level: Level = "subgraph"
    recall: bool = True
    max_error: float = inf
    guess: Guess = no_guess


class NetworkTuner:
    """Tunes the tasks of one network against a store.

    `fused` are the network's tasks; `tasks` what is searched: the same at the subgraph level, their
    bare anchors at the operator level. `known` holds what is believed of each, by key; with
    `recall` off in the terms it starts empty. What is `given` is believed as it is.
    """

    def __init__(
        self,
        fused: Mapping[TaskKey, Task],
        placement: Placement,
        store: Store,
        measurer: Measurer,
        terms: TuningTerms,
        given: Mapping[TaskKey, list[Outcome]] | None = None,
    ) -> None:
        self.fused = fused
        self.tasks: Mapping[TaskKey, Task] = (
            fused if terms.level == "subgraph" else bare_tasks(fused)
        )
        self.measurements = 0
        self.failures = 0
        self.model_s = 0.0
        self.curve: tuple[CurvePoint, ...] = ()
        self.states: dict[TaskKey, TaskState] = {}
        self._settled = frozenset[str]()
        self.outdated = 0
        self._placement = placement
        self._store = store
        self._measurer = measurer
        self._terms = terms
        self._neighbours = neighbours_in_store(self.tasks, store, placement) if terms.recall else {}
        self.known = self._current_knowledge(given or {})

    def _current_knowledge(
        self, given: Mapping[TaskKey, list[Outcome]]
    ) -> dict[TaskKey, list[Outcome]]:
        """What was given; else what the store knows, less what older templates made."""
        every = {**self.fused, **self.tasks}
        if not self._terms.recall:
            return {key: list(given.get(key, [])) for key in every}
        tasks = {key: task for key, task in every.items() if key not in given}
        stored = {
            key: known_outcomes(task, self._store, self._placement) for key, task in tasks.items()
        }
        workloads = {key: task.workload for key, task in tasks.items()}
        known, self.outdated = believed(stored, workloads, self._measurer.current_hashes)
        if self.outdated:
            note = f"{self.outdated} tasks have new templates; old times are not used"
            self._terms.events(Note(message=note))
        self._tell_of_other_spaces(known)
        known |= {key: list(given[key]) for key in every if key in given}
        return {key: self._exact_enough(every[key], found) for key, found in known.items()}

    def _exact_enough(self, task: Task, outcomes: list[Outcome]) -> list[Outcome]:
        out = too_inexact(task.workload, task.forms, self._placement, self._terms.max_error)
        return [o for o in outcomes if o.candidate.implementation not in out]

    def _space(self, task: Task) -> SearchSpace:
        return search_space(task.workload, task.forms, self._placement, self._terms.max_error)

    def _tell_of_other_spaces(self, known: Mapping[TaskKey, list[Outcome]]) -> None:
        """Say how many records were made in spaces that have changed since: no tuner reads them."""
        strange = 0
        for key in known.keys() & self.tasks.keys():
            task = self.tasks[key]
            space = self._space(task)
            names = {part.name for part in space.parts}
            strange += sum(
                o.candidate.implementation in names and space.number(o.candidate) is None
                for o in known[key]
            )
        if strange:
            note = f"{strange} records are of settings that today's spaces lack; tuners skip them"
            self._terms.events(Note(message=note))

    def run(
        self,
        budget: Budget,
        peaks: Peaks,
        *,
        stop: Callable[[], bool],
        checkpoint: Callable[[], None],
    ) -> bool:
        """Spend the budget; outcomes go to the store as they come. True when all converged."""
        with ExitStack() as open_tuners:
            self.states = {
                key: self._state(task, peaks, open_tuners) for key, task in self.tasks.items()
            }
            loop = TuningLoop(
                self.states.values(),
                self._measurer,
                self._store,
                self._terms.protocol,
                self._terms.events,
            )

            def count() -> None:
                self.measurements, self.failures = loop.measurements, loop.failures
                checkpoint()

            try:
                loop.run(budget, run_id=self._terms.run_id, stop=stop, checkpoint=count)
            finally:
                self.measurements, self.failures = loop.measurements, loop.failures
                self.model_s, self.curve = loop.model_s, tuple(loop.curve)
                self._settled = loop.settled()
            self._tell_problems()
        for key, state in self.states.items():
            self.known[key] = state.outcomes
        return loop.converged

    def _tell_problems(self) -> None:
        """Say which tuners could not search."""
        for state in self.states.values():
            problem = getattr(state.tuner, "problem", "")
            if problem:
                self._terms.events(Note(message=f"{state.name}: {problem}"))

    def _state(self, task: Task, peaks: Peaks, open_tuners: ExitStack) -> TaskState:
        """A task with its tuner, which tries the best guess of every implementation first: what
        the estimates put second is measured too."""
        known = self.known[task.key]
        space = self._space(task)
        ranking = ranked_defaults(task.workload, task.forms, self._placement, self._terms.max_error)
        estimates = {c: seconds for c, seconds in ranking if space.number(c) is not None}
        defaults = list(estimates)

        def make() -> Tuner:
            return make_tuner(
                self._terms.tuner,
                TuningTask(
                    space=space,
                    seed=self._terms.seed,
                    workload=task.workload,
                    forms=task.forms,
                    placement=self._placement,
                    featurizer=WorkloadFeaturizer(self._measurer, task.workload),
                    precedents=precedents(
                        task, space, self._latest(), self._similar(), self._placement
                    ),
                    guesses=(
                        *defaults,
                        *self._terms.guess(task.workload, task.forms),
                        *self._elsewhere(task),
                    ),
                ),
            )

        tuner = LateTuner(make)
        open_tuners.callback(tuner.close)
        tuner.tell(known)
        state = TaskState(
            workload=task.workload,
            forms=task.forms,
            count=task.count,
            tuner=tuner,
            space=space,
            default=defaults[0],
            floor_s=task_floor_s(
                task.workload, self._placement.target, self._placement.resources, peaks
            ),
            estimate_s=estimates[defaults[0]],
            name=task.name,
            family=family_of(task) if self._terms.level == "subgraph" else "",
        )
        state.outcomes = list(known)
        return state

    def _elsewhere(self, task: Task) -> tuple[Candidate, ...]:
        """What was best on other devices, unless nothing is to be recalled."""
        return best_elsewhere(task, self._store, self._placement) if self._terms.recall else ()

    def _latest(self) -> dict[TaskKey, list[Outcome]]:
        """What is known by now, this run's outcomes and other networks' included."""
        stored = {key: outcomes for key, (_, outcomes) in self._neighbours.items()}
        return {**stored, **{key: state.outcomes for key, state in self.states.items()}}

    def _similar(self) -> list[Task]:
        """The tasks that may be precedents: this network's and those of others."""
        return [*self.tasks.values(), *(task for task, _ in self._neighbours.values())]

    def searches(self) -> tuple[TaskSearchReport, ...]:
        """What this run's search did for each task, in order of first use."""
        return tuple(
            _search_report(key, state, converged=state.name in self._settled)
            for key, state in self.states.items()
        )


def _brief(settings: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Settings with long texts, a schedule's trace say, cut: the database has them whole."""
    return {
        name: f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
        for name, value in settings.items()
    }


def _search_report(key: TaskKey, state: TaskState, *, converged: bool) -> TaskSearchReport:
    default, best = state.default_measured, state.best
    gain = None
    if default is not None and best is not None:
        gain = speedup_apart(ours=best.samples_s, theirs=default.samples_s)
    return TaskSearchReport(
        task=state.name,
        key=key[0],
        first_s=state.default_s,
        best_s=best.latency_s if best is not None else None,
        gain=gain.value if gain is not None else None,
        gain_low=gain.low if gain is not None else None,
        gain_high=gain.high if gain is not None else None,
        measurements=sum(isinstance(t.outcome, Measurement) for t in state.trials),
        failures=sum(not isinstance(t.outcome, Measurement) for t in state.trials),
        converged=converged,
        trials=tuple(
            TrialReport(
                number=number,
                elapsed_s=trial.elapsed_s,
                latency_s=trial.outcome.latency_s
                if isinstance(trial.outcome, Measurement)
                else None,
                implementation=trial.outcome.candidate.implementation,
                settings=_brief(dict(trial.outcome.candidate.settings)),
            )
            for number, trial in enumerate(state.trials, start=1)
        ),
    )
