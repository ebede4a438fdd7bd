"""Tuning a network's tasks within a budget, and choosing winners that were measured twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note
from tilewright.core.records import Candidate, Device, Failure, Measurement, Outcome, Protocol
from tilewright.kernels.blueprint import TaskKey
from tilewright.measure.kernels import KernelMeasurer
from tilewright.session.checking import KernelCheck, check_kernel
from tilewright.session.choices import known_outcomes, ranked
from tilewright.session.knowledge import believed
from tilewright.session.preparation import PreparedNetwork, Task
from tilewright.session.reporting import Peaks
from tilewright.store.database import SqliteStore
from tilewright.tune.budget import Spending
from tilewright.tune.loop import TaskState, TuningLoop
from tilewright.tune.neighbourhood import NeighbourhoodTuner
from tilewright.tune.space import default_candidate, ranked_defaults

FINALISTS = 3
_CLOSE = 1.06
_AGAIN = 3
_SHARE = 3e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The candidate a task gets, with its measurement (None when never measured) and check.

    `default` is the measurement of our default settings, for a network that ships with those.
    """

    candidate: Candidate
    measurement: Measurement | None
    check: KernelCheck | None
    default: Measurement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTerms:
    """What holds for a whole run: how kernels are timed, the seed, the run's row, who listens."""

    protocol: Protocol
    seed: int
    run_id: int | None
    events: EventSink


class NetworkTuner:
    """Tunes the tasks of one network against a store."""

    def __init__(
        self,
        network: PreparedNetwork,
        device: Device,
        store: SqliteStore,
        measurer: KernelMeasurer,
        terms: TuningTerms,
    ) -> None:
        self.network = network
        self.measurements = 0
        self.failures = 0
        self._device = device
        self._store = store
        self._measurer = measurer
        self._terms = terms
        self._events = terms.events
        self._spending: Spending | None = None
        self.outdated = 0
        self._known = self._current_knowledge()

    def _current_knowledge(self) -> dict[TaskKey, list[Outcome]]:
        """What the store knows, less what older templates made."""
        tasks = self.network.tasks
        stored = {
            key: known_outcomes(task, self._store, self._device) for key, task in tasks.items()
        }
        workloads = {key: task.workload for key, task in tasks.items()}
        known, self.outdated = believed(stored, workloads, self._measurer.current_hashes)
        if self.outdated:
            self._events(
                Note(message=f"{self.outdated} tasks have new templates; old times are not used")
            )
        return known

    def run(
        self,
        spending: Spending,
        peaks: Peaks,
        *,
        stop: Callable[[], bool],
        checkpoint: Callable[[], None],
    ) -> bool:
        """Spend the budget; outcomes go to the store as they come. True when all converged."""
        self._spending = spending
        states = [self._state(task, peaks) for task in self.network.tasks.values()]
        loop = TuningLoop(states, self._measurer, self._store, self._terms.protocol, self._events)

        def count() -> None:
            self.measurements, self.failures = loop.measurements, loop.failures
            checkpoint()

        try:
            loop.run(spending, run_id=self._terms.run_id, stop=stop, checkpoint=count)
        finally:
            self.measurements, self.failures = loop.measurements, loop.failures
        for task, state in zip(self.network.tasks, states, strict=True):
            self._known[task] = state.outcomes
        return loop.converged

    def _state(self, task: Task, peaks: Peaks) -> TaskState:
        known = self._known[task.key]
        tuner = NeighbourhoodTuner(task.workload, task.layouts, self._device, seed=self._terms.seed)
        tuner.tell(known)
        state = TaskState(
            workload=task.workload,
            layouts=task.layouts,
            count=task.count,
            tuner=tuner,
            default=default_candidate(task.workload, task.layouts, self._device)[0],
            floor_s=peaks.floor_s(task),
        )
        state.outcomes = list(known)
        return state

    def winners(
        self,
        *,
        measure: bool,
        checked: Mapping[TaskKey, tuple[Candidate, KernelCheck]],
    ) -> dict[TaskKey, Winner]:
        """The candidate for each task: finalists measured again, the winner checked.

        `measure` False believes what is stored. `checked` holds checks made by earlier runs.
        """
        chosen: dict[TaskKey, Winner] = {}
        least_s = _SHARE * sum(self._best_s(task) for task in self.network.tasks.values())
        for key, task in self.network.tasks.items():
            if measure and self._best_s(task) >= least_s:
                self._second_look(task)
            chosen[key] = self._checked_winner(task, checked.get(key))
        return chosen

    def _best_s(self, task: Task) -> float:
        """Seconds of all calls of a task together, zero where it was never measured."""
        best = ranked(self._known[task.key])
        return task.count * best[0].latency_s if best else 0.0

    def _second_look(self, task: Task) -> None:
        """Measure the close finalists again, more carefully, unless that was done before."""
        protocol = self._terms.protocol
        careful = replace(protocol, repeats=_AGAIN * protocol.repeats)
        for _ in range(FINALISTS):
            best = ranked(self._known[task.key])[:FINALISTS]
            close = [m for m in best if m.latency_s <= _CLOSE * best[0].latency_s]
            fresh = [m.candidate for m in close if m.protocol != careful]
            if self._spending is not None:
                fresh = fresh[: int(min(FINALISTS, max(0, self._spending.remaining_count)))]
            if len(close) < 2 or not fresh:
                return
            outcomes = self._measurer.measure(
                task.workload, fresh, careful, run_id=self._terms.run_id
            )
            self._remember(task, outcomes)
            if self._spending is not None:
                self._spending.count += len(outcomes)

    def _checked_winner(self, task: Task, earlier: tuple[Candidate, KernelCheck] | None) -> Winner:
        guesses = [c for c, _ in ranked_defaults(task.workload, task.layouts, self._device)]
        plain, rejected = guesses[0], set[Candidate]()
        while True:
            known = ranked(self._known[task.key])
            best = [m for m in known if m.candidate not in rejected]
            left = [guess for guess in guesses if guess not in rejected]
            winner = Winner(
                candidate=best[0].candidate if best else left[0],
                measurement=best[0] if best else None,
                check=None,
                default=next((m for m in best if m.candidate == plain), None),
            )
            if earlier is not None and earlier[0] == winner.candidate:
                return replace(winner, check=earlier[1])
            check = check_kernel(self._measurer, task.workload, winner.candidate, self._terms.seed)
            if check.failure is None:
                return replace(winner, check=check)
            self._reject(task, check.failure)
            rejected.add(winner.candidate)
            if len(best) <= 1 and not [guess for guess in left if guess not in rejected]:
                raise _nothing_valid(task, check.failure)

    def _reject(self, task: Task, failure: Failure) -> None:
        self._remember(task, [failure])
        self._events(
            Note(
                message=f"{task.name}: a candidate of {failure.candidate.implementation} was "
                f"rejected, {failure.kind}: {failure.message.splitlines()[0]}"
            )
        )

    def _remember(self, task: Task, outcomes: list[Outcome]) -> None:
        self._store.add(outcomes)
        self._known[task.key] = [*self._known[task.key], *outcomes]
        failures = sum(isinstance(outcome, Failure) for outcome in outcomes)
        self.failures += failures
        self.measurements += len(outcomes) - failures


def _nothing_valid(task: Task, failure: Failure) -> NegativeVerdict:
    return NegativeVerdict(
        f"no candidate gives right results for task {task.name} ({task.workload.key}): "
        f"{failure.kind}: {failure.message.splitlines()[0]}",
        hint=f"tilewright show '{task.workload.key}' --tir shows the kernel.",
    )
