"""Sharing a budget over the tasks of a network.

Each round goes to the task with the largest expected gain for the whole network: how often it is
called × its best time × what it may still gain. A task's prospects halve with every batch that
brings nothing; a task without prospects has converged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol as TypingProtocol

from tilewright.core.events import EventSink, TuningProgress
from tilewright.core.protocols import MeasurementStore
from tilewright.core.records import Candidate, Measurement, Outcome, Protocol
from tilewright.graph.workload import Workload
from tilewright.tune.base import Tuner
from tilewright.tune.budget import Spending

BATCH = 8
_WORTH = 3e-4
"""Rounds whose expected gain is a smaller share of the network's time are not worth it."""
_IMPROVED = 0.99
_HOPELESS = 2.0
"""A candidate this many times slower than the best is sampled once."""


class CandidateMeasurer(TypingProtocol):
    """What the loop needs of a measurer."""

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        *,
        run_id: int | None = None,
        give_up_s: float = inf,
        finished: Callable[[Outcome], None] = ...,
    ) -> list[Outcome]:
        """One outcome per candidate, in order; `finished` gets each as soon as it is known."""
        ...


@dataclass(slots=True, kw_only=True)
class TaskState:
    """A task while its network is tuned.

    `floor_s` is the roofline time, below which nothing can be gained.
    """

    workload: Workload
    layouts: tuple[str, ...]
    count: int
    tuner: Tuner
    default: Candidate
    floor_s: float
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    stale: int = 0
    finished: bool = False

    @property
    def best(self) -> Measurement | None:
        """The fastest measurement."""
        found = [o for o in self.outcomes if isinstance(o, Measurement)]
        return min(found, key=lambda outcome: outcome.latency_s, default=None)

    @property
    def best_s(self) -> float:
        """Seconds of the fastest measurement, infinite without one."""
        return self.best.latency_s if self.best else inf

    def expected_gain_s(self) -> float:
        """Seconds the network may gain from one more batch."""
        if self.finished:
            return 0.0
        if self.best is None:
            return inf if not self.outcomes or self.stale < 3 else 0.0
        prospect = max(0.02, 0.5 * (1.0 - self.floor_s / self.best_s))
        return self.count * self.best_s * prospect * 0.5**self.stale


class TuningLoop:
    """Runs rounds until the budget is spent, every task has converged, or it is told to stop."""

    def __init__(
        self,
        tasks: Iterable[TaskState],
        measurer: CandidateMeasurer,
        store: MeasurementStore,
        protocol: Protocol,
        events: EventSink,
    ) -> None:
        self.tasks = list(tasks)
        self.measurements = 0
        self.failures = 0
        self.converged = False
        self._measurer = measurer
        self._store = store
        self._protocol = protocol
        self._events = events

    def run(
        self,
        spending: Spending,
        *,
        run_id: int | None,
        stop: Callable[[], bool],
        checkpoint: Callable[[], None],
    ) -> None:
        """Spend the budget; `checkpoint` is called after each round is stored."""
        while not spending.exhausted and not stop():
            task = self._next()
            if task is None:
                self.converged = True
                return
            self._round(task, spending, run_id)
            checkpoint()

    def network_s(self) -> float:
        """Sum over all tasks of count × best time, those without a time left out."""
        return sum(task.count * task.best_s for task in self.tasks if task.best is not None)

    def _all_known(self) -> bool:
        return all(task.best is not None for task in self.tasks)

    def _next(self) -> TaskState | None:
        network_s = self.network_s()
        task = max(self.tasks, key=lambda t: t.expected_gain_s(), default=None)
        if task is None or task.expected_gain_s() <= _WORTH * network_s:
            return None
        return task

    def _round(self, task: TaskState, spending: Spending, run_id: int | None) -> None:
        wanted = int(min(BATCH, spending.remaining_count))
        if task.best is None and not task.outcomes:
            proposals = [task.default, *task.tuner.ask(wanted)]
            candidates = list(dict.fromkeys(proposals))[:wanted]
        else:
            candidates = task.tuner.ask(wanted)
        if not candidates:
            task.finished = True
            return
        before_s = task.best_s

        def keep(outcome: Outcome) -> None:
            self._store.add([outcome])
            spending.count += 1
            if isinstance(outcome, Measurement):
                self.measurements += 1
            else:
                self.failures += 1

        outcomes = self._measurer.measure(
            task.workload,
            candidates,
            self._protocol,
            run_id=run_id,
            give_up_s=_HOPELESS * before_s,
            finished=keep,
        )
        task.tuner.tell(outcomes)
        task.outcomes += outcomes
        task.stale = 0 if task.best_s < _IMPROVED * before_s else task.stale + 1
        self._events(
            TuningProgress(
                task=task.workload.key,
                measurements=self.measurements,
                failures=self.failures,
                best_s=None if task.best is None else task.best_s,
                network_s=self.network_s() if self._all_known() else None,
                remaining_s=None if spending.remaining_s == inf else spending.remaining_s,
            )
        )
