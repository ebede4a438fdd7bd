"""Sharing a budget over the tasks of a network.

Each round goes to the task with the largest expected gain for the whole network: how often it is
called × its best time × what it may still gain. A task's prospects halve with every batch that
brings nothing; a task without prospects has converged. A task that was not measured yet may gain
all of the time that is expected of it, and its first look takes few candidates: large tasks get
their turn first, and what a short budget leaves unmeasured is small.

Tasks with the same anchor form a family. Its heaviest member leads: it is searched, and the others
get its best settings measured in their own kernel once it slows down, with little search of their
own after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from statistics import fmean
from typing import Protocol as TypingProtocol

from msgspec import structs

from tilewright.core.budget import Budget
from tilewright.core.events import EventSink, TuningProgress
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Measurement, Outcome, Protocol
from tilewright.core.results import CurvePoint
from tilewright.graph.workload import Workload
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.tuners.base import Tuner
from tilewright.store.base import Store

BATCH = 8
_FIRST_LOOK = 4
"""Candidates of the first round of a task: the default and the best guesses."""
_WORTH = 3e-4
"""Rounds whose expected gain is a smaller share of the network's time are not worth it."""
_DOUBT = 2.0
"""A task that was never measured is taken for as many times as long as is expected."""
_IMPROVED = 0.99
_HOPELESS = 2.0
"""A candidate this many times slower than the best is sampled once."""
_LED_ROUNDS = 1
"""After so many rounds the family follows its leader for the first time, and again whenever the
leader has slowed down with a best setting that a follower has not tried."""
_FOLLOWING = 2
"""The leader's best settings that each later round of a follower begins with."""
_FOLLOWED = 2
"""Prospects of a follower are halved so often once it has the leader's settings."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate that was measured in this run, `elapsed_s` after the run began."""

    elapsed_s: float
    outcome: Outcome


@dataclass(slots=True, kw_only=True)
class TaskState:
    """A task while its network is tuned.

    `floor_s` is the roofline time, below which nothing can be gained, `estimate_s` the facts' rough
    time of the default. Tasks of one `family` share their anchor; an empty one stands for a task of
    its own. `trials` are this run's outcomes in order, `outcomes` those of earlier runs too.
    """

    workload: Workload
    forms: tuple[Form, ...]
    count: int
    tuner: Tuner
    space: SearchSpace
    default: Candidate
    floor_s: float
    estimate_s: float = 0.0
    name: str = ""
    family: str = ""
    leader: TaskState | None = None
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    trials: list[Trial] = field(default_factory=list[Trial])
    rounds: int = 0
    stale: int = 0
    followed: bool = False
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

    @property
    def unknown(self) -> bool:
        """Whether nothing was measured, and a measurement may still succeed."""
        return self.best is None and not self.finished and (not self.outcomes or self.stale < 3)

    def expected_gain_s(self, pace: float = 1.0) -> float:
        """Seconds the network may gain from one more batch; `pace` is what tasks take of their
        estimates."""
        if self.finished:
            return 0.0
        if self.best is None:
            expected_s = max(self.floor_s, pace * self.estimate_s)
            return _DOUBT * self.count * expected_s if self.unknown else 0.0
        if self.leader is not None and not self.followed and not self.leader.slowing:
            return 0.0
        prospect = max(0.02, 0.5 * (1.0 - self.floor_s / self.best_s))
        stale = min(self.stale, _FOLLOWED - 1) if self.behind else self.stale
        return self.count * self.best_s * prospect * 0.5**stale

    @property
    def behind(self) -> bool:
        """Whether a leader that has slowed down knows a best setting that was not tried here."""
        leader = self.leader
        if leader is None or leader.best is None or not (leader.finished or leader.stale > 0):
            return False
        return bool(self.untried(leader.ranked()[:1]))

    def untried(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates of the family in this task's layouts, where they fit and are new here."""
        tried = {outcome.candidate for outcome in self.outcomes}
        moved = [structs.replace(candidate, forms=self.forms) for candidate in candidates]
        return [c for c in moved if c not in tried and self.space.number(c) is not None]

    @property
    def slowing(self) -> bool:
        """Whether the search has found most of what it will find."""
        return self.finished or self.stale > 0 or self.rounds >= _LED_ROUNDS

    @property
    def default_measured(self) -> Measurement | None:
        """Our default settings as they were measured last, None where they were not."""
        found = [
            o for o in self.outcomes if isinstance(o, Measurement) and o.candidate == self.default
        ]
        return found[-1] if found else None

    @property
    def default_s(self) -> float | None:
        """Seconds of our default settings, None where they were not measured."""
        found = self.default_measured
        return found.latency_s if found is not None else None

    def ranked(self) -> list[Candidate]:
        """Measured candidates, fastest first."""
        found = [o for o in self.outcomes if isinstance(o, Measurement)]
        return list(dict.fromkeys(o.candidate for o in sorted(found, key=lambda o: o.latency_s)))


class TuningLoop:
    """Runs rounds until the budget is spent, every task has converged, or it is told to stop.

    `model_s` adds up what the tuners took to think; `curve` tells how the network's time fell.
    """

    def __init__(
        self,
        tasks: Iterable[TaskState],
        measurer: CandidateMeasurer,
        store: Store,
        protocol: Protocol,
        events: EventSink,
    ) -> None:
        self.tasks = list(tasks)
        self.measurements = 0
        self.failures = 0
        self.converged = False
        self.model_s = 0.0
        self.curve: list[CurvePoint] = []
        self._measurer = measurer
        self._store = store
        self._protocol = protocol
        self._events = events
        self._pace = Pace()
        for task in self.tasks:
            self._pace.learn(task)
        _appoint_leaders(self.tasks)

    def run(
        self,
        budget: Budget,
        *,
        run_id: int | None,
        stop: Callable[[], bool],
        checkpoint: Callable[[], None],
    ) -> None:
        """Spend the budget; `checkpoint` is called after each round is stored."""
        while not budget.exhausted and not stop():
            task = self._next()
            if task is None:
                self.converged = True
                return
            self._round(task, budget, run_id)
            checkpoint()

    def network_s(self) -> float:
        """Sum over all tasks of count × best time, those without a time left out."""
        return sum(task.count * task.best_s for task in self.tasks if task.best is not None)

    def _all_known(self) -> bool:
        return all(task.best is not None for task in self.tasks)

    def _next(self) -> TaskState | None:
        task = self._promising()
        if task is None:
            waiting = [t.leader for t in self.tasks if t.leader is not None and not t.followed]
            for leader in waiting:
                leader.finished = True
            task = self._promising() if waiting else None
        return task

    def settled(self) -> frozenset[str]:
        """Names of the tasks that are not worth another round."""
        least_s = self._least_gain_s()
        return frozenset(task.name for task in self.tasks if self._gain_s(task) <= least_s)

    def _least_gain_s(self) -> float:
        """What a round of a task that was measured must promise to be worth it."""
        unknown = sum(self._gain_s(task) for task in self.tasks if task.unknown)
        return _WORTH * (self.network_s() + unknown)

    def _gain_s(self, task: TaskState) -> float:
        return task.expected_gain_s(self._pace.of(task.default.implementation))

    def _promising(self) -> TaskState | None:
        """The task with most to gain; one that was never measured, where the others have little."""
        task = max(self.tasks, key=self._gain_s, default=None)
        if task is not None and self._gain_s(task) > self._least_gain_s():
            return task
        return max((t for t in self.tasks if t.unknown), key=self._gain_s, default=None)

    def _proposals(self, task: TaskState, wanted: int) -> list[Candidate]:
        """The default first; a follower's leader's best; then whatever the tuner asks for."""
        tried = {outcome.candidate for outcome in task.outcomes}
        first: list[Candidate] = [] if task.outcomes else [task.default]
        if task.leader is not None and not task.followed:
            if not task.leader.slowing:
                return first
            if task.outcomes:
                task.followed = True
                task.stale += _FOLLOWED
            led = task.untried(task.leader.ranked())
            return [*first, *(c for c in led if c not in first)][:wanted]
        if task.leader is not None:
            first += task.untried(task.leader.ranked()[:_FOLLOWING])[:wanted]
        while len(first) < wanted:
            asked = task.tuner.ask(wanted - len(first))
            fresh = [c for c in asked if c not in first and c not in tried]
            first += fresh
            if len(fresh) == len(asked):
                break
        return first

    def _round(self, task: TaskState, budget: Budget, run_id: int | None) -> None:
        most = BATCH if task.outcomes else _FIRST_LOOK
        wanted = int(min(most, budget.remaining_count))
        was_led = task.leader is not None and not task.followed
        began_s = time.perf_counter()
        candidates = self._proposals(task, wanted)
        self.model_s += time.perf_counter() - began_s
        if not candidates:
            task.finished = task.finished or not (was_led and task.followed)
            self._tell(task, budget)
            return
        before_s = task.best_s

        def keep(outcome: Outcome) -> None:
            self._store.add([outcome])
            budget.measured()
            task.trials.append(Trial(elapsed_s=budget.elapsed_s, outcome=outcome))
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
        began_s = time.perf_counter()
        task.tuner.tell(outcomes)
        self.model_s += time.perf_counter() - began_s
        first_look = task.best is None
        task.outcomes += outcomes
        if first_look:
            self._pace.learn(task)
        task.rounds += 1
        if task.best_s < _IMPROVED * before_s:
            task.stale = _FOLLOWED if was_led and task.followed else 0
        else:
            task.stale += 1
        self._tell(task, budget)

    def _tell(self, task: TaskState, budget: Budget) -> None:
        network_s = self.network_s() if self._all_known() else None
        self.curve.append(
            CurvePoint(
                measurements=self.measurements + self.failures,
                elapsed_s=budget.elapsed_s,
                network_latency_s=network_s,
            )
        )
        default_s, best_s = task.default_s, task.best_s if task.best else None
        self._events(
            TuningProgress(
                task=task.name or task.workload.key,
                measurements=self.measurements,
                failures=self.failures,
                best_s=best_s,
                network_s=network_s,
                remaining_s=None if budget.remaining_s == inf else budget.remaining_s,
                gain=default_s / best_s if default_s and best_s else None,
                task_measurements=sum(isinstance(t.outcome, Measurement) for t in task.trials),
                task_failures=sum(not isinstance(t.outcome, Measurement) for t in task.trials),
                converged=self._gain_s(task) <= self._least_gain_s(),
            )
        )


class Pace:
    """How long tasks take beside their estimates, by what computes them by default: the geometric
    mean over those that were measured, all of them where there is none of an implementation."""

    def __init__(self) -> None:
        self._logarithms: dict[str, list[float]] = {}

    def learn(self, task: TaskState) -> None:
        """Take in a task whose default was measured; others tell nothing."""
        if task.default_s is not None and task.estimate_s > 0.0:
            ratio = log(task.default_s / task.estimate_s)
            self._logarithms.setdefault(task.default.implementation, []).append(ratio)

    def of(self, implementation: str) -> float:
        """Time / estimate to expect; 1 where nothing was measured."""
        everything = [ratio for ratios in self._logarithms.values() for ratio in ratios]
        known = self._logarithms.get(implementation, everything)
        return exp(fmean(known)) if known else 1.0


def _appoint_leaders(tasks: Sequence[TaskState]) -> None:
    """The member of each family with most time at its floor leads; the others follow."""
    families: dict[str, list[TaskState]] = {}
    for task in tasks:
        if task.family:
            families.setdefault(task.family, []).append(task)
    for members in families.values():
        leader = max(members, key=lambda task: task.count * task.floor_s)
        for member in members:
            member.leader = None if member is leader else leader
