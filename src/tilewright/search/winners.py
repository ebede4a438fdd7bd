"""Choosing winners that were measured twice and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from tilewright.core.budget import Budget
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import Note
from tilewright.core.records import Candidate, Failure, KernelCheck, Measurement, Outcome, Placement
from tilewright.core.records import Protocol as TimingProtocol
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.plans import with_candidates
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.base import Measurer
from tilewright.measure.checking import check_kernels
from tilewright.search.levels import Level, bare_task, carried_over
from tilewright.search.tuning import TuningTerms
from tilewright.store.base import Store
from tilewright.store.known_candidates import ranked

FINALISTS = 3
LAST = "last measurements"
"""The phase in which winners of the operator level are timed in their fused kernels."""
Pick = tuple[Candidate, CallResult]
"""The candidate that a task gets, and what is known of it."""
_CLOSE = 1.06
_AGAIN = 3
_SHARE = 3e-3


def measured_last(level: Level, tasks: int, budget: Budget) -> int:
    """Measurements kept back at the operator level: each winner is timed once in its fused
    kernel. Half of what is left at most, so that a small budget is searched with too."""
    return int(min(tasks, budget.remaining_count / 2)) if level == "op" else 0


@dataclass(slots=True, kw_only=True)
class _Offer:
    """What a task may get: the fastest of `known`, then `guesses`, then our defaults, less what was
    rejected."""

    task: Task
    known: Sequence[Measurement]
    guesses: Sequence[Candidate]
    defaults: Sequence[Candidate]
    rejected: set[Candidate] = field(default_factory=set[Candidate])

    def best(self) -> Pick | None:
        """The best that is left, not checked; None where nothing is."""
        known = [m for m in self.known if m.candidate not in self.rejected]
        left = [c for c in (*self.guesses, *self.defaults) if c not in self.rejected]
        if not known and not left:
            return None
        return known[0].candidate if known else left[0], CallResult(
            alone=known[0] if known else None,
            usual=next((m for m in known if m.candidate == self.defaults[0]), None),
        )


class Searched(Protocol):
    """What a search leaves: the network's tasks, the tasks it searched, what is believed of each.

    `known` grows with what the referee measures.
    """

    @property
    def fused(self) -> Mapping[TaskKey, Task]: ...

    @property
    def tasks(self) -> Mapping[TaskKey, Task]: ...

    @property
    def known(self) -> dict[TaskKey, list[Outcome]]: ...


class Referee:
    """Picks the winner of each task from what a search left.

    `measurements` and `failures` count what the second looks and checks added.
    """

    def __init__(
        self,
        searched: Searched,
        placement: Placement,
        store: Store,
        measurer: Measurer,
        terms: TuningTerms,
    ) -> None:
        self.measurements = 0
        self.failures = 0
        self._tasks = searched.fused
        self._searched = searched.tasks
        self._known = searched.known
        self._placement = placement
        self._store = store
        self._measurer = measurer
        self._terms = terms

    def decide(
        self,
        name: str,
        plan: NetworkPlan,
        *,
        budget: Budget | None,
        checked: Mapping[TaskKey, tuple[Candidate, KernelCheck]],
    ) -> PlanResult:
        """The plan with what `picks` gives each of its tasks, by name."""
        picks = self.picks(budget, checked)
        chosen = {key: candidate for key, (candidate, _) in picks.items()}
        decided = PlanResult(name=name, plan=with_candidates(plan, chosen))
        return decided.with_tasks({key: known for key, (_, known) in picks.items()})

    def picks(
        self,
        budget: Budget | None,
        checked: Mapping[TaskKey, tuple[Candidate, KernelCheck]],
    ) -> dict[TaskKey, Pick]:
        """What each task gets: finalists measured again, the best checked.

        Without `budget` nothing is measured and what is stored is believed. `checked` holds checks
        made by earlier runs.
        """
        if budget is not None:
            if self._terms.level == "op":
                budget.expect(LAST)
                left = int(min(len(self._tasks), budget.remaining_count))
                budget.expect(LAST, measurements=left)
            with budget.phase("finalists"):
                self.look_again(budget)
        if self._terms.level == "op":
            with budget.phase(LAST) if budget is not None else nullcontext():
                offers = [self._from_operator(task, budget) for task in self._tasks.values()]
        else:
            offers = [self._from_subgraph(task) for task in self._tasks.values()]
        return self._checked_winners(offers, checked)

    def look_again(self, budget: Budget) -> None:
        """Measure the finalists of the searched tasks that matter to the network once more, the
        heaviest tasks first, while there is time."""
        heaviest = sorted(self._searched.values(), key=self._best_s, reverse=True)
        least_s = _SHARE * sum(self._best_s(task) for task in heaviest)
        for task in heaviest:
            if self._best_s(task) < least_s or budget.remaining_s <= 0:
                break
            self._second_look(task, budget)

    def _from_subgraph(self, task: Task) -> _Offer:
        """What was measured of the task; a guess where nothing was."""
        known = ranked(self._known[task.key])
        guesses = () if known else self._terms.guess(task.workload, task.forms)
        return self._offer(task, known, guesses[:1])

    def _from_operator(self, task: Task, budget: Budget | None) -> _Offer:
        """The bare anchor's best setting in the fused kernel, timed once for the record."""
        bare = bare_task(task)
        best = [m.candidate for m in ranked(self._known[bare.key])]
        candidate = carried_over(best, task, self._placement)
        if candidate is None:
            return self._offer(task, [], ())
        found = [m for m in ranked(self._known[task.key]) if m.candidate == candidate]
        if not found and budget is not None and budget.remaining_count > 0:
            outcomes = self._measured(task, [candidate], self._terms.protocol)
            budget.measured(len(outcomes))
            found = [o for o in outcomes if isinstance(o, Measurement)]
        return self._offer(task, found, (candidate,))

    def _offer(
        self, task: Task, known: Sequence[Measurement], guesses: Sequence[Candidate]
    ) -> _Offer:
        ranking = ranked_defaults(task.workload, task.forms, self._placement, self._terms.max_error)
        return _Offer(
            task=task,
            known=known,
            guesses=guesses,
            defaults=[candidate for candidate, _ in ranking],
        )

    def _best_s(self, task: Task) -> float:
        """Seconds of all calls of a task together, zero where it was never measured."""
        best = ranked(self._known[task.key])
        return task.count * best[0].latency_s if best else 0.0

    def _second_look(self, task: Task, budget: Budget) -> None:
        """Measure the close finalists again, more carefully, unless that was done before."""
        protocol = self._terms.protocol
        careful = replace(protocol, repeats=_AGAIN * protocol.repeats)
        for _ in range(FINALISTS):
            best = ranked(self._known[task.key])[:FINALISTS]
            close = [m for m in best if m.latency_s <= _CLOSE * best[0].latency_s]
            fresh = [m.candidate for m in close if m.protocol != careful]
            fresh = fresh[: int(min(FINALISTS, max(0, budget.remaining_count)))]
            if len(close) < 2 or not fresh:
                return
            outcomes = self._measured(task, fresh, careful)
            budget.measured(len(outcomes))

    def _checked_winners(
        self, offers: Sequence[_Offer], checked: Mapping[TaskKey, tuple[Candidate, KernelCheck]]
    ) -> dict[TaskKey, Pick]:
        """The best of each offer whose results are right, checked side by side."""
        chosen: dict[TaskKey, Pick] = {}
        open_offers = list(offers)
        while open_offers:
            picks = [self._best_of(offer) for offer in open_offers]
            checks = self._checks(
                [(o.task, c) for o, (c, _) in zip(open_offers, picks, strict=True)], checked
            )
            rejected: list[_Offer] = []
            for offer, (candidate, known), check in zip(open_offers, picks, checks, strict=True):
                if check.failure is None:
                    chosen[offer.task.key] = candidate, replace(known, check=check)
                else:
                    self._reject(offer.task, check.failure)
                    offer.rejected.add(candidate)
                    rejected.append(offer)
            open_offers = rejected
        return {key: chosen[key] for key in self._tasks}

    def _best_of(self, offer: _Offer) -> Pick:
        best = offer.best()
        if best is None:
            raise _nothing_valid(offer.task, self._known[offer.task.key])
        return best

    def _checks(
        self,
        picked: Sequence[tuple[Task, Candidate]],
        checked: Mapping[TaskKey, tuple[Candidate, KernelCheck]],
    ) -> list[KernelCheck]:
        """The check of each: the one that an earlier run made, else a new one."""
        known: dict[TaskKey, KernelCheck] = {}
        for task, candidate in picked:
            earlier, check = checked.get(task.key, (None, None))
            if check is not None and candidate == earlier:
                known[task.key] = check
        new = [(task, candidate) for task, candidate in picked if task.key not in known]
        kernels = [(task.workload, candidate) for task, candidate in new]
        found = check_kernels(self._measurer, kernels, self._terms.seed)
        known |= {task.key: check for (task, _), check in zip(new, found, strict=True)}
        return [known[task.key] for task, _ in picked]

    def _reject(self, task: Task, failure: Failure) -> None:
        self._remember(task, [failure])
        self._terms.events(
            Note(
                message=f"{task.name}: a candidate of {failure.candidate.implementation} "
                f"was rejected, {failure.kind}: {failure.message.splitlines()[0]}"
            )
        )

    def _measured(
        self, task: Task, candidates: Sequence[Candidate], protocol: TimingProtocol
    ) -> list[Outcome]:
        outcomes = self._measurer.measure(
            task.workload, candidates, protocol, run_id=self._terms.run_id
        )
        self._remember(task, outcomes)
        return outcomes

    def _remember(self, task: Task, outcomes: Sequence[Outcome]) -> None:
        self._store.add(outcomes)
        self._known[task.key] = [*self._known[task.key], *outcomes]
        failures = sum(isinstance(outcome, Failure) for outcome in outcomes)
        self.failures += failures
        self.measurements += len(outcomes) - failures


def _nothing_valid(task: Task, known: Sequence[Outcome]) -> NegativeVerdict:
    last = [outcome for outcome in known if isinstance(outcome, Failure)][-1]
    return NegativeVerdict(
        f"no candidate gives right results for task {task.name} ({task.workload.key}): "
        f"{last.kind}: {last.message.splitlines()[0]}",
        hint=f"tilewright show '{task.workload.key}' --tir shows the kernel.",
    )
