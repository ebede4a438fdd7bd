"""Sharing a budget over the tasks of a network.

Each round goes to the task with the largest expected gain for the whole network: how often it is
called × its best time × what it may still gain. A task's prospects halve with every batch that
brings nothing; a task without prospects has converged. A task that was not measured yet may gain
all of the time that is expected of it, and its first look takes few candidates: large tasks get
their turn first, and what a short budget leaves unmeasured is small.

Tasks with the same anchor form a group. Its heaviest member leads: it is searched, and the others
get its best settings measured in their own kernel once it slows down, with little search of their
own after that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from statistics import fmean

from msgspec import structs

from tilewright.core import events, results
from tilewright.core.grouping import grouped
from tilewright.core.records import Candidate, Measurement, Outcome
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.search_space import SearchSpace
from tilewright.search.context import SearchContext
from tilewright.search.tuners.base import LateTuner

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
"""After so many rounds the group follows its leader for the first time, and again whenever the
leader has slowed down with a best setting that a follower has not tried."""
_FOLLOWING = 2
"""The leader's best settings that each later round of a follower begins with."""
_FOLLOWED = 2
"""Prospects of a follower are halved so often once it has the leader's settings."""


@dataclass(slots=True, kw_only=True)
class TaskState:
    """A task while its network is tuned.

    `floor_s` is the roofline time, below which nothing can be gained, `estimate_s` the facts' rough
    time of the default. Tasks of one `group` share their anchor; an empty one stands for a task of
    its own. `libraries` are the candidates that libraries offer. `outcomes` are those of earlier
    runs too; `trials` are this run's in order, each with the seconds since the run began. `stale`
    counts the rounds since the last one that brought
    something.
    """

    task: Task
    tuner: LateTuner
    space: SearchSpace
    default: Candidate
    floor_s: float
    estimate_s: float = 0.0
    group: str = ""
    libraries: tuple[Candidate, ...] = ()
    leader: TaskState | None = None
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    trials: list[tuple[float, Outcome]] = field(default_factory=list[tuple[float, Outcome]])
    rounds: int = 0
    stale: int = 0
    followed: bool = False
    finished: bool = False

    def measured(self) -> list[Measurement]:
        """All measurements, fastest first."""
        found = (outcome for outcome in self.outcomes if isinstance(outcome, Measurement))
        return sorted(found, key=lambda measurement: measurement.latency_s)

    @property
    def best(self) -> Measurement | None:
        """The fastest measurement."""
        return next(iter(self.measured()), None)

    @property
    def best_s(self) -> float:
        """Seconds of the fastest measurement, infinite without one."""
        return min((measurement.latency_s for measurement in self.measured()), default=inf)

    @property
    def default_measured(self) -> Measurement | None:
        """Our default settings as they were measured last, None where they were not."""
        found = (o for o in reversed(self.outcomes) if o.candidate == self.default)
        return next((o for o in found if isinstance(o, Measurement)), None)

    @property
    def tried(self) -> tuple[int, int]:
        """How many candidates were measured in this run, and how many failed."""
        failures = sum(not isinstance(outcome, Measurement) for _, outcome in self.trials)
        return len(self.trials) - failures, failures

    @property
    def unknown(self) -> bool:
        """Whether nothing was measured, and a measurement may still succeed."""
        return self.best is None and not self.finished and (not self.outcomes or self.stale < 3)

    @property
    def waits(self) -> bool:
        """Whether the task has still to get the settings that its leader finds."""
        return self.leader is not None and not self.followed

    @property
    def slowing(self) -> bool:
        """Whether the search has found most of what it will find."""
        return self.finished or self.stale > 0 or self.rounds >= _LED_ROUNDS

    @property
    def behind(self) -> bool:
        """Whether a leader that has slowed down knows a best setting that was not tried here."""
        slow = self.leader is not None and (self.leader.finished or self.leader.stale > 0)
        return slow and bool(self.untried(1))

    def untried(self, count: int | None = None) -> list[Candidate]:
        """The leader's best settings, so many or all, where they fit this task's layouts and are
        new here."""
        led = dict.fromkeys(m.candidate for m in self.leader.measured()) if self.leader else ()
        tried = {outcome.candidate for outcome in self.outcomes}
        moved = [structs.replace(candidate, forms=self.task.forms) for candidate in [*led][:count]]
        return [c for c in moved if c not in tried and self.space.number(c) is not None]

    def expected_gain_s(self, scale: float = 1.0) -> float:
        """Seconds the network may gain from one more batch; `scale` is what tasks take of their
        estimates."""
        if self.finished:
            return 0.0
        count, best_s = self.task.count, self.best_s
        if best_s == inf:
            expected_s = max(self.floor_s, scale * self.estimate_s) if self.unknown else 0.0
            return _DOUBT * count * expected_s
        if self.waits and self.leader is not None and not self.leader.slowing:
            return 0.0
        prospect = max(0.02, 0.5 * (1.0 - self.floor_s / best_s))
        stale = min(self.stale, _FOLLOWED - 1) if self.behind else self.stale
        return count * best_s * prospect * 0.5**stale


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What is measured of a task next; `follows` where its leader's settings reach it thereby."""

    task: TaskState
    asked: Sequence[Candidate]
    follows: bool


class TuningLoop:
    """Runs rounds until the budget is spent, every task has converged, or it is told to stop.

    `curve` tells how the network's time fell.
    """

    def __init__(self, tasks: Iterable[TaskState], context: SearchContext) -> None:
        self.tasks = list(tasks)
        self.converged = False
        self.curve: list[results.CurvePoint] = []
        self._context = context
        self._scale = EstimateScale()
        for task in self.tasks:
            self._scale.learn(task)
        for group, members in grouped([(task.group, task) for task in self.tasks]).items():
            leader = max(members, key=lambda member: member.task.count * member.floor_s)
            for member in members if group else ():
                member.leader = None if member is leader else leader

    def run(self) -> None:
        """Spend the budget."""
        while not self._context.ends:
            rounds = self._next_rounds()
            if not rounds:
                self.converged = True
                return
            if len(rounds) > 1:
                ahead = [(each.task.task.workload, c) for each in rounds for c in each.asked]
                self._context.measurer.build_ahead(ahead)
            for each in rounds:
                self._carry_out(each)
                self._context.checkpoint()
                if self._context.ends:
                    return

    def network_s(self) -> float:
        """Sum over all tasks of count × best time, those without a time left out."""
        return sum(task.task.count * task.best_s for task in self.tasks if task.best is not None)

    def settled(self) -> frozenset[str]:
        """Names of the tasks that are not worth another round."""
        least_s = self._least_gain_s()
        return frozenset(task.task.name for task in self.tasks if self._gain_s(task) <= least_s)

    def _next_rounds(self) -> list[_Round]:
        """That of the task with most to gain; those of the next ones, too, where kernels of several
        tasks are best built side by side. Nothing where all converged."""
        budget, wanted = self._context.budget, self._context.measurer.at_once
        rounds: list[_Round] = []
        left, task = budget.remaining_count, self._next()
        while task is not None:
            waited, most = task.waits, BATCH if task.outcomes else _FIRST_LOOK
            with budget.phase("model"):
                asked = self._proposals(task, int(min(most, left)))
            rounds.append(_Round(task=task, asked=asked, follows=waited and task.followed))
            left, wanted = left - len(asked), wanted - len(asked)
            chosen = {each.task.task.key for each in rounds}
            task = self._promising(besides=chosen) if min(left, wanted) > 0 else None
        return rounds

    def _next(self) -> TaskState | None:
        task = self._promising()
        if task is None:
            waiting = [task.leader for task in self.tasks if task.waits and task.leader]
            for leader in waiting:
                leader.finished = True
            task = self._promising() if waiting else None
        return task

    def _least_gain_s(self) -> float:
        """What a round of a task that was measured must promise to be worth it."""
        unknown = sum(self._gain_s(task) for task in self.tasks if task.unknown)
        return _WORTH * (self.network_s() + unknown)

    def _gain_s(self, task: TaskState) -> float:
        return task.expected_gain_s(self._scale.of(task.default.implementation))

    def _promising(self, besides: Collection[TaskKey] = ()) -> TaskState | None:
        """The task with most to gain; one that was never measured, where the others have little."""
        tasks = [task for task in self.tasks if task.task.key not in besides]
        task = max(tasks, key=self._gain_s, default=None)
        if task is not None and self._gain_s(task) > self._least_gain_s():
            return task
        return max((t for t in tasks if t.unknown), key=self._gain_s, default=None)

    def _proposals(self, task: TaskState, wanted: int) -> list[Candidate]:
        """The default and what libraries offer first; a follower's leader's best; then whatever the
        tuner asks for."""
        tried = {outcome.candidate for outcome in task.outcomes}
        first = [] if task.outcomes else [task.default]
        first += [candidate for candidate in task.libraries if candidate not in tried][:wanted]
        if task.leader is not None and task.waits:
            if not task.leader.slowing:
                return first[:wanted]
            if task.outcomes:
                task.followed = True
                task.stale += _FOLLOWED
            return [*first, *(c for c in task.untried() if c not in first)][:wanted]
        first += [c for c in task.untried(_FOLLOWING)[:wanted] if c not in first]
        while len(first) < wanted:
            asked = task.tuner.ask(wanted - len(first))
            fresh = [c for c in asked if c not in first and c not in tried]
            first += fresh
            if len(fresh) == len(asked):
                break
        return first[:wanted]

    def _carry_out(self, each: _Round) -> None:
        budget, task = self._context.budget, each.task
        if not each.asked:
            task.finished = task.finished or not each.follows
            self._tell(task)
            return
        before_s = task.best_s
        outcomes = self._context.measure(
            task.task,
            each.asked,
            give_up_s=_HOPELESS * before_s,
            finished=lambda outcome: task.trials.append((budget.elapsed_s, outcome)),
        )
        with budget.phase("model"):
            task.tuner.tell(outcomes)
        task.outcomes += outcomes
        if before_s == inf:
            self._scale.learn(task)
        task.rounds += 1
        if task.best_s >= _IMPROVED * before_s:
            task.stale += 1
        else:
            task.stale = _FOLLOWED if each.follows else 0
        self._tell(task)

    def _tell(self, task: TaskState) -> None:
        budget = self._context.budget
        unknown = any(each.best is None for each in self.tasks)
        network_s = None if unknown else self.network_s()
        measurements, failures = map(sum, zip(*(each.tried for each in self.tasks), strict=True))
        self.curve.append(
            results.CurvePoint(
                measurements=measurements + failures,
                elapsed_s=budget.elapsed_s,
                network_latency_s=network_s,
            )
        )
        default, best = task.default_measured, task.best
        self._context.events(
            events.TuningProgress(
                task=task.task.name or task.task.workload.key,
                measurements=measurements,
                failures=failures,
                best_s=best.latency_s if best else None,
                network_s=network_s,
                gain=default.latency_s / best.latency_s if default and best else None,
                task_measurements=task.tried[0],
                task_failures=task.tried[1],
                converged=self._gain_s(task) <= self._least_gain_s(),
                **budget.told,
            )
        )


class EstimateScale:
    """How long tasks take beside their estimates, by what computes them by default: the geometric
    mean over those that were measured, all of them where there is none of an implementation."""

    def __init__(self) -> None:
        self._logarithms: defaultdict[str, list[float]] = defaultdict(list)

    def learn(self, task: TaskState) -> None:
        """Take in a task whose default was measured; others tell nothing."""
        measured = task.default_measured
        if measured is not None and task.estimate_s > 0.0:
            ratios = self._logarithms[task.default.implementation]
            ratios.append(log(measured.latency_s / task.estimate_s))

    def of(self, implementation: str) -> float:
        """Time / estimate to expect; 1 where nothing was measured."""
        everything = [ratio for ratios in self._logarithms.values() for ratio in ratios]
        known = self._logarithms.get(implementation, everything)
        return exp(fmean(known)) if known else 1.0
