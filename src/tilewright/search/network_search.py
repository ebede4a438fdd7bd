"""From a network to the contenders for shipping: tuned tasks, then layouts and algorithms over the
whole graph, then a referee for each of the networks found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tilewright.core.budget import Budget
from tilewright.core.errors import NegativeVerdict, StoreError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Candidate, KernelCheck, Outcome, Placement
from tilewright.core.signals import graceful_interrupt
from tilewright.cost.floors import Peaks
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.plans import with_candidates
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.base import Measurer
from tilewright.measure.circumstances import kernel_protocol
from tilewright.models.prepared import PreparedNetwork
from tilewright.plan.assignment.problem_file import write_problem
from tilewright.predict.modelling import predictors_of
from tilewright.predict.zero_shot import BestGuesses
from tilewright.search.contenders import TUNED
from tilewright.search.graph_search import CHOSEN, GraphSearch
from tilewright.search.knowledge import known_of
from tilewright.search.levels import GraphLevel
from tilewright.search.places import Places
from tilewright.search.requests import OptimizeRequest
from tilewright.search.tuning import Guess, NetworkTuner, TuningTerms, no_guess
from tilewright.search.winners import LAST, Referee, Searched, measured_last
from tilewright.store.base import Store
from tilewright.store.known_candidates import defaults
from tilewright.store.shipped_plans import candidates_of, plan_of, shipping_key

SHIPPED_BEFORE = "shipped before"
_GRAPH_SHARE = 0.4
"""Part of the budget that the graph tuner may spend on other layouts."""


@dataclass(slots=True, kw_only=True)
class NetworkSearch:
    """One search, of layouts and algorithms too if `with_graph`; with `rivals` the graph tuner's
    rivals race, too.

    The budget learns what each phase took: `search` is the time beyond building, running and the
    tuners' thinking. `proposals` are what the graph tuner found.
    """

    request: OptimizeRequest
    network: PreparedNetwork
    placement: Placement
    store: Store
    events: EventSink
    budget: Budget
    run_id: int | None
    checkpoint: Callable[[], None]
    with_graph: bool = False
    rivals: bool = True
    tuner: NetworkTuner | None = None
    graph: GraphSearch | None = None
    proposals: list[PlanResult] = field(default_factory=list[PlanResult])
    _guess: Guess = no_guess
    _searched_graph: bool = False
    _looked_at: list[Searched] = field(default_factory=list[Searched])
    _referees: list[Referee] = field(default_factory=list[Referee])
    _checks: dict[TaskKey, tuple[Candidate, KernelCheck]] = field(
        default_factory=dict[TaskKey, tuple[Candidate, KernelCheck]]
    )

    def __post_init__(self) -> None:
        """A search starts from what the predictors expect to be fastest if they are there; where
        nothing may be measured they are made."""
        if access_to(self.placement.device).here:
            self._guess = BestGuesses(
                placement=self.placement,
                predictors=predictors_of(self.placement, self.store, self.events),
                max_error=self.request.max_error,
                fitting=self.budget.nothing,
            )

    @property
    def measurements(self) -> int:
        """Candidates measured so far."""
        return sum(part.measurements for part in self._parts())

    @property
    def failures(self) -> int:
        """Candidates that failed so far."""
        return sum(part.failures for part in self._parts())

    @property
    def _terms(self) -> TuningTerms:
        return TuningTerms(
            protocol=kernel_protocol(self.placement),
            seed=self.request.seed,
            run_id=self.run_id,
            events=self.events,
            tuner=self.request.tuner,
            level=self.request.searched_level,
            max_error=self.request.max_error,
            guess=self._guess,
        )

    def _parts(self) -> list[NetworkTuner | GraphSearch | Referee]:
        parts = (self.tuner, self.graph, *self._referees)
        return [part for part in parts if part is not None]

    def contenders(
        self, measurer: Measurer, peaks: Peaks, *, settled_before: bool
    ) -> tuple[list[PlanResult], bool]:
        """The plan in default layouts first, then others; and whether all converged.

        With `settled_before` nothing is searched unless templates have changed since.
        """
        terms = self._terms
        with self.budget.phase("recall"):
            self.tuner = NetworkTuner(
                self.network.tasks, self.placement, self.store, measurer, terms
            )
        settled = settled_before and self.tuner.outdated == 0
        may_measure = not self.budget.exhausted and not settled
        if not (may_measure or settled or self.budget.nothing or any(self.tuner.known.values())):
            message = (
                "The budget leaves no time to measure, finishing takes all of it: raise --budget."
            )
            self.events(Note(message=message))
        if may_measure:
            converged = self._search(measurer, terms, peaks)
        else:
            converged = settled
            self._recall_graph(measurer, terms)
        self.events(Stage(name="check", detail="winners against numpy"))
        budget = self.budget if may_measure else None
        self.budget.expect("finalists")
        with self.budget.phase("verify", keep=0.5 if self.proposals and may_measure else 0.0):
            tuned = self._decided(TUNED, self.network.plan, self.tuner, measurer, budget)
            self._looked_at.append(self.tuner)
        found = [tuned]
        if self.graph is not None and may_measure:
            known = self.graph.known | self.tuner.known
            for proposal in self.proposals if self.rivals else self.proposals[:1]:
                searched = known_of(proposal.plan.tasks, known)
                again = budget if proposal.name == CHOSEN else None
                decided = self._decided_if_right(
                    proposal.name, proposal.plan, searched, measurer, again
                )
                if decided is not None:
                    self._looked_at.append(searched)
                    found.append(decided)
        found += self._shipped_before(measurer, terms)
        return found, converged

    def _search(self, measurer: Measurer, terms: TuningTerms, peaks: Peaks) -> bool:
        """Spend the budget; True when everything converged."""
        tuner = self.tuner
        assert tuner is not None
        self.events(Stage(name="tune", detail=f"{len(tuner.tasks)} tasks"))
        before = replace(measurer.spent)
        last = measured_last(terms.level, len(self.network.tasks), self.budget)
        self.budget.expect(LAST, measurements=last)
        with graceful_interrupt() as interruption, self.budget.phase("search"):
            with self.budget.keeping(_GRAPH_SHARE if self.with_graph else 0.0):
                converged = tuner.run(
                    self.budget, peaks, stop=interruption, checkpoint=self.checkpoint
                )
            if self.with_graph and not interruption.requested:
                self.graph = self._graph_search(measurer, terms, tuner.known)
                self.proposals = self.graph.run(
                    self.budget, peaks, stop=interruption, checkpoint=self.checkpoint
                )
                self._searched_graph = True
                self._save_problem(self.graph)
                converged = converged and self.graph.converged
                learned = self.graph.known
                tuner.known |= {key: learned[key] for key in tuner.fused if key in learned}
            self.budget.credit("build", measurer.spent.build_s - before.build_s)
            self.budget.credit("run", measurer.spent.run_s - before.run_s)
            graph_s = self.graph.model_s if self.graph else 0.0
            self.budget.credit("model", tuner.model_s + graph_s)
        if interruption.requested:
            raise KeyboardInterrupt
        return converged

    def _recall_graph(self, measurer: Measurer, terms: TuningTerms) -> None:
        """The graph tuner's assignments by what is known already: to be told of, not to race."""
        if self.with_graph and self.tuner is not None:
            self.graph = self._graph_search(measurer, terms, self.tuner.known)
            with self.budget.phase("recall"):
                self.proposals = self.graph.recalled()
            self._save_problem(self.graph)

    def _graph_search(
        self, measurer: Measurer, terms: TuningTerms, known: Mapping[TaskKey, list[Outcome]]
    ) -> GraphSearch:
        graph = self.request.graph or GraphLevel()
        return GraphSearch(
            network=self.network,
            placement=self.placement,
            store=self.store,
            measurer=measurer,
            terms=terms,
            known=dict(known),
            solver=graph.solver,
        )

    def _save_problem(self, graph: GraphSearch) -> None:
        wanted = self.request.graph
        if wanted is not None and wanted.save_problem is not None:
            write_problem(graph.problem.problem, wanted.save_problem)

    def _decided(
        self,
        name: str,
        plan: NetworkPlan,
        searched: Searched,
        measurer: Measurer,
        budget: Budget | None,
    ) -> PlanResult:
        """The plan with the winner of each task, with the time of second looks and checks
        accounted for."""
        referee = Referee(searched, self.placement, self.store, measurer, self._terms)
        self._referees.append(referee)
        with self.budget.phase("verify"):
            checked = self._earlier_checks(searched.fused) | self._checks
            decided = referee.decide(name, plan, budget=budget, checked=checked)
        for key, candidate in decided.plan.candidates.items():
            check = decided.task(key).check
            if check is not None:
                self._checks[key] = candidate, check
        return decided

    def _decided_if_right(
        self,
        name: str,
        plan: NetworkPlan,
        searched: Searched,
        measurer: Measurer,
        budget: Budget | None = None,
    ) -> PlanResult | None:
        """The same; None, with a note, where a task has no candidate that gives right results."""
        try:
            return self._decided(name, plan, searched, measurer, budget)
        except NegativeVerdict as error:
            self.events(Note(message=f"The plan {name!r} is left out: {error.message}"))
            return None

    def reconsider(self, places: Places, measurer: Measurer) -> PlanResult | None:
        """The graph tuner's choice by times that are corrected by the places of the kernels in the
        networks of a race; None where layouts were not searched, or no time is left for it."""
        if self.graph is None or not self._searched_graph or self.budget.remaining_s <= 0:
            return None
        with self.budget.phase("reconsider"):
            proposal = self.graph.reconsider(places, self._looked_at)
        if proposal is None:
            return None
        self.proposals.append(proposal)
        chosen = proposal.plan.candidates
        searched = known_of(
            proposal.plan.tasks,
            self.graph.known,
            lambda key, candidate: candidate.implementation == chosen[key].implementation,
        )
        return self._decided_if_right(proposal.name, proposal.plan, searched, measurer)

    def _shipped_before(self, measurer: Measurer, terms: TuningTerms) -> list[PlanResult]:
        """The plan that shipped earlier; kernels whose templates changed since get the best of
        today's. Nothing where that is the plan with our default settings."""
        shipped = self.store.shipped(self.network.key, self.placement.key)
        if shipped is None:
            return []
        try:
            plan = plan_of(shipped, self.network, self.placement)
        except StoreError as error:
            self.events(Note(message=f"What shipped before is left out: {error.message}"))
            return []
        if plan.tasks.keys() == self.network.tasks.keys() and self.tuner is not None:
            known = self.tuner.known
        else:
            known = NetworkTuner(plan.tasks, self.placement, self.store, measurer, terms).known
        chosen = plan.candidates
        searched = known_of(plan.tasks, known, lambda key, candidate: candidate == chosen[key])
        found = self._decided_if_right(SHIPPED_BEFORE, plan, searched, measurer)
        usual = with_candidates(
            self.network.plan, defaults(self.network.tasks, self.placement, terms.max_error)
        )
        return [] if found is None or found.plan == usual else [found]

    def _earlier_checks(
        self, tasks: Mapping[TaskKey, Task]
    ) -> dict[TaskKey, tuple[Candidate, KernelCheck]]:
        """Checks of these tasks that shipments already made, unless templates changed: this
        network's last one, and other networks' of kernels that had been measured before."""
        if self.tuner is None or self.tuner.outdated:
            return {}
        last = self.store.shipped(self.network.key, self.placement.key)
        found: dict[TaskKey, tuple[Candidate, KernelCheck]] = {}
        for shipped in self.store.all_shipped(self.placement.key):
            with suppress(StoreError):
                candidates = candidates_of(shipped)
                for key in tasks:
                    name = shipping_key(key)
                    candidate, bound = candidates.get(name), shipped.numbers.get(f"bound:{name}")
                    if candidate is None or bound is None:
                        continue
                    if shipped == last or self._measured_by(key, candidate, shipped.created_at):
                        error = shipped.numbers.get(f"error:{name}")
                        found[key] = (candidate, KernelCheck(error=error, bound=bound))
        return found

    def _measured_by(self, key: TaskKey, candidate: Candidate, moment: float) -> bool:
        """Whether today's kernel of a candidate is known since before a moment."""
        known = self.tuner.known.get(key, ()) if self.tuner is not None else ()
        return any(o.candidate == candidate and o.created_at <= moment for o in known)
