"""Choosing winners that were measured twice and checked, and the names of plans that race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from tilewright.core.errors import NegativeVerdict
from tilewright.core.records import (
    Candidate,
    Failure,
    KernelCheck,
    Measurement,
    Outcome,
    Placement,
    Protocol,
)
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.plans import with_candidates
from tilewright.measure.checking import check_kernels
from tilewright.search import levels, tuning
from tilewright.search.context import SearchContext
from tilewright.store.known_candidates import defaults, ranked

TUNED, DEFAULT = "tuned", "default"
"""Of the plans that race: the best settings in the default layouts; our default settings in these.
Others are what the graph tuner found."""
FINALISTS = 3
LAST = "last measurements"
"""The phase in which winners of the operator level are timed in their fused kernels."""
Pick = tuple[Candidate, CallResult]
"""The candidate that a task gets, and what is known of it."""
Offer = dict[Candidate, Measurement | None]
"""What a task may get, the best first, with its time where it was measured."""
Checks = Mapping[TaskKey, tuple[Candidate, KernelCheck]]
"""Checks that were made before."""
_CLOSE = 1.06
_AGAIN = 3
_SHARE = 3e-3


def in_default_settings(tuned: PlanResult, placement: Placement, max_error: float) -> PlanResult:
    """The plan of `tuned` with default settings; their times where they were measured."""
    usual = defaults(tuned.plan.tasks, placement, max_error)
    found = {key: (each, tuned.task(key)) for key, each in tuned.plan.candidates.items()}
    known = {
        key: known if candidate == usual[key] else CallResult(alone=known.usual)
        for key, (candidate, known) in found.items()
    }
    plan = with_candidates(tuned.plan, usual)
    return replace(tuned, name=DEFAULT, plan=plan, calls={}).with_tasks(known)


class FinalistCheck:
    """Picks the winner of each of a network's tasks from what a search left in `known`, which grows
    with what is measured here. `searched` are the tasks that were searched: at the operator level
    their winners are carried over to the network's tasks.
    """

    def __init__(
        self,
        tasks: Mapping[TaskKey, Task],
        known: tuning.Known,
        context: SearchContext,
        searched: Mapping[TaskKey, Task] | None = None,
    ) -> None:
        self._tasks = tasks
        self._searched = searched or tasks
        self._known = known
        self._context = context
        self._at_operators = context.level == "op" and searched is not None

    def picks(self, checks: Checks, *, again: bool) -> dict[TaskKey, Pick]:
        """What each task gets: the best that is right; `checks` are not made again.

        With `again` close finalists are measured again; without, nothing is measured and what is
        known is believed. A candidate whose results are wrong makes way for the next best.
        """
        budget = self._context.budget
        if again and self._at_operators:
            budget.expect(LAST)
            left = int(min(len(self._tasks), budget.remaining_count))
            budget.expect(LAST, measurements=left)
        if again:
            with budget.phase("finalists"):
                self.look_again()
        with budget.phase(LAST) if again and self._at_operators else nullcontext():
            offers = {key: self._offer(task, again) for key, task in self._tasks.items()}
        picks: dict[TaskKey, Pick] = {}
        open_tasks = [*self._tasks.values()]
        while open_tasks:
            picked = [(task, self._first(task, offers[task.key])) for task in open_tasks]
            found = self._checks([(task, candidate) for task, (candidate, _) in picked], checks)
            open_tasks.clear()
            for (task, (candidate, known)), check in zip(picked, found, strict=True):
                picks[task.key] = candidate, replace(known, check=check)
                if check.failure is not None:
                    self._reject(task, check.failure)
                    del offers[task.key][candidate]
                    open_tasks.append(task)
        return {key: picks[key] for key in self._tasks}

    def look_again(self) -> None:
        """Measure the finalists of the searched tasks that matter to the network once more, the
        heaviest tasks first, while there is time."""
        heaviest = sorted(self._searched.values(), key=self._best_s, reverse=True)
        least_s = _SHARE * sum(self._best_s(task) for task in heaviest)
        heavy = [task for task in heaviest if self._best_s(task) >= least_s]
        measurer, budget = self._context.measurer, self._context.budget
        at_once = max(1, measurer.at_once // FINALISTS)
        for number, task in enumerate(heavy):
            if budget.remaining_s <= 0:
                break
            if at_once > 1 and number % at_once == 0:
                beside = heavy[number : number + at_once]
                measurer.build_ahead([(t.workload, c) for t in beside for c in self._close(t)])
            self._second_look(task)

    def _best_s(self, task: Task) -> float:
        """Seconds of all calls of a task together, zero where it was never measured."""
        best = ranked(self._known[task.key])
        return task.count * best[0].latency_s if best else 0.0

    def _second_look(self, task: Task) -> None:
        """Measure the close finalists again, more carefully, unless that was done before."""
        for _ in range(FINALISTS):
            close = self._close(task)
            if not close:
                return
            self._measured(task, close, self._careful)

    @property
    def _careful(self) -> Protocol:
        protocol = self._context.protocol
        return replace(protocol, repeats=_AGAIN * protocol.repeats)

    def _close(self, task: Task) -> list[Candidate]:
        """Finalists that deserve a second look which they did not have, while there is budget."""
        best = ranked(self._known[task.key])[:FINALISTS]
        close = [m for m in best if m.latency_s <= _CLOSE * best[0].latency_s]
        left = int(min(FINALISTS, max(0, self._context.budget.remaining_count)))
        fresh = [m.candidate for m in close if m.protocol != self._careful]
        return fresh[:left] if len(close) > 1 else []

    def _offer(self, task: Task, again: bool) -> Offer:
        """What a task may get: what was measured of it; a guess where nothing was; our defaults."""
        context = self._context
        known, guesses = ranked(self._known[task.key]), list[Candidate]()
        if self._at_operators:
            known, guesses = self._from_operator(task, known, again)
        elif not known:
            guesses = [*context.guess(task.workload, task.forms)[:1]]
        offer: Offer = {measurement.candidate: measurement for measurement in known}
        return offer | {c: None for c in (*guesses, *context.defaults(task)) if c not in offer}

    def _from_operator(
        self, task: Task, known: list[Measurement], again: bool
    ) -> tuple[list[Measurement], list[Candidate]]:
        """The bare anchor's best setting in the fused kernel, timed once for the record."""
        best = [m.candidate for m in ranked(self._known[levels.bare_task(task).key])]
        candidate = levels.carried_over(best, task, self._context.placement)
        if candidate is None:
            return [], []
        found = [m for m in known if m.candidate == candidate]
        if not found and again and self._context.budget.remaining_count > 0:
            outcomes = self._measured(task, [candidate], self._context.protocol)
            found = [outcome for outcome in outcomes if isinstance(outcome, Measurement)]
        return found, [candidate]

    def _first(self, task: Task, offer: Offer) -> Pick:
        """The best that is left, not checked; raises NegativeVerdict where nothing is."""
        if not offer:
            failures = [o for o in self._known[task.key] if isinstance(o, Failure)]
            raise NegativeVerdict(
                f"no candidate gives right results for task {task.name} ({task.workload.key}): "
                f"{failures[-1].headline}",
                hint=f"tilewright show '{task.workload.key}' --tir shows the kernel.",
            )
        candidate, alone = next(iter(offer.items()))
        default = next(iter(self._context.defaults(task)))
        others = (m for c, m in offer.items() if c.implementation != candidate.implementation)
        rival = next(filter(None, others), None)
        return candidate, CallResult(alone=alone, usual=offer.get(default), rival=rival)

    def _checks(
        self, picked: Sequence[tuple[Task, Candidate]], checks: Checks
    ) -> list[KernelCheck]:
        """The check of each: the one that an earlier run made, else a new one."""
        known = {task.key: checks.get(task.key, (None, None)) for task, _ in picked}
        new = [(task, each) for task, each in picked if known[task.key][0] != each]
        kernels = [(task.workload, candidate) for task, candidate in new]
        made = check_kernels(self._context.measurer, kernels, self._context.seed)
        found = {task.key: check for (task, _), check in zip(new, made, strict=True)}
        return [found.get(task.key) or checks[task.key][1] for task, _ in picked]

    def _reject(self, task: Task, failure: Failure) -> None:
        self._context.keep(failure)
        self._known[task.key] = [*self._known[task.key], failure]
        self._context.note(
            f"{task.name}: a candidate of {failure.candidate.implementation} "
            f"was rejected, {failure.headline}"
        )

    def _measured(
        self, task: Task, candidates: Sequence[Candidate], protocol: Protocol
    ) -> list[Outcome]:
        outcomes = self._context.measure(task, candidates, protocol=protocol)
        self._known[task.key] = [*self._known[task.key], *outcomes]
        return outcomes
