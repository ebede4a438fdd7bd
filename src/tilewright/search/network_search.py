"""From a network to the plans that race for shipping: tuned tasks, then layouts and algorithms over
the whole graph, then a check of the finalists of each of the plans found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tilewright.core.budget import Budget
from tilewright.core.errors import NegativeVerdict, StoreError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.records import Candidate, KernelCheck, Placement
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
from tilewright.predict.forecasting import BestGuesses
from tilewright.predict.modelling import predictors_of
from tilewright.search.context import Counts, Guess, SearchContext, no_guess
from tilewright.search.graph_search import CHOSEN, GraphSearch
from tilewright.search.layout_costs import InNetworkFactors
from tilewright.search.levels import GraphLevel, OptimizeRequest
from tilewright.search.tuning import Known, NetworkTuner
from tilewright.search.winners import LAST, TUNED, FinalistCheck, measured_last
from tilewright.store.base import Store
from tilewright.store.known_candidates import candidates_of, defaults, plan_of, ranked, shipping_key

SHIPPED_BEFORE = "shipped before"
_GRAPH_SHARE = 0.4
"""Part of the budget that the graph tuner may spend on other layouts."""

Tasks = Mapping[TaskKey, Task]


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
    counts: Counts = field(default_factory=Counts)
    proposals: list[PlanResult] = field(default_factory=list[PlanResult])
    graph: GraphSearch | None = None
    tuner: NetworkTuner = field(init=False)
    _guess: Guess = no_guess
    _searched_graph: bool = False
    _looked_at: list[tuple[Tasks, Known]] = field(default_factory=list[tuple[Tasks, Known]])
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

    def plans(
        self, measurer: Measurer, peaks: Peaks, *, settled_before: bool
    ) -> tuple[list[PlanResult], bool]:
        """The plan in default layouts first, then others; and whether all converged.

        With `settled_before` nothing is searched unless templates have changed since.
        """
        context = SearchContext(
            placement=self.placement,
            store=self.store,
            measurer=measurer,
            events=self.events,
            budget=self.budget,
            peaks=peaks,
            protocol=kernel_protocol(self.placement),
            seed=self.request.seed,
            run_id=self.run_id,
            tuner=self.request.tuner,
            level=self.request.searched_level,
            max_error=self.request.max_error,
            guess=self._guess,
            checkpoint=self.checkpoint,
            counts=self.counts,
        )
        with self.budget.phase("recall"):
            self.tuner = tuner = NetworkTuner(self.network.tasks, context)
        settled = settled_before and tuner.outdated == 0
        searches = not self.budget.exhausted and not settled
        if not (searches or settled or self.budget.nothing or any(tuner.known.values())):
            message = (
                "The budget leaves no time to measure, finishing takes all of it: raise --budget."
            )
            self.events(Note(message=message))
        converged = self._searched(context) if searches else settled
        if self.with_graph and not searches:
            self._choose_layouts(context, measuring=False)
        self.events(Stage(name="check", detail="winners against numpy"))
        self.budget.expect("finalists")
        with self.budget.phase("verify", keep=0.5 if self.proposals and searches else 0.0):
            found = [self._decided(TUNED, self.network.plan, tuner.known, context, again=searches)]
        if self.graph is not None and searches:
            believed = self.graph.known | tuner.known
            for proposal in self.proposals if self.rivals else self.proposals[:1]:
                known = _known_of(proposal.plan.tasks, believed)
                again = proposal.name == CHOSEN
                found.append(
                    self._decided(proposal.name, proposal.plan, known, context, again=again)
                )
        found.append(self._shipped_before(context))
        return [plan for plan in found if plan is not None], converged

    def _searched(self, context: SearchContext) -> bool:
        """Spend the budget; True when everything converged."""
        tuner, spent, before = self.tuner, context.measurer.spent, replace(context.measurer.spent)
        self.events(Stage(name="tune", detail=f"{len(tuner.tasks)} tasks"))
        last = measured_last(context.level, len(self.network.tasks), self.budget)
        self.budget.expect(LAST, measurements=last)
        with graceful_interrupt() as interruption, self.budget.phase("search"):
            context.stop = interruption
            with self.budget.keeping(_GRAPH_SHARE if self.with_graph else 0.0):
                converged = tuner.run()
            if self.with_graph and not interruption():
                graph = self._choose_layouts(context, measuring=True)
                converged = converged and graph.converged
                learned = graph.known
                tuner.known |= {key: learned[key] for key in tuner.fused if key in learned}
            self.budget.credit("build", spent.build_s - before.build_s)
            self.budget.credit("run", spent.run_s - before.run_s)
        if interruption():
            raise KeyboardInterrupt
        return converged

    def _choose_layouts(self, context: SearchContext, *, measuring: bool) -> GraphSearch:
        """Run the graph tuner; without measuring, its assignments by what is known already are to
        be told of, not to race."""
        wanted = self.request.graph or GraphLevel()
        self.graph = graph = GraphSearch(
            network=self.network,
            context=context,
            known=dict(self.tuner.known),
            solver=wanted.solver,
        )
        self._searched_graph = measuring
        if measuring:
            self.proposals = graph.run()
        else:
            with self.budget.phase("recall"):
                self.proposals = graph.recalled()
        if wanted.save_problem is not None:
            write_problem(graph.problem.problem, wanted.save_problem)
        return graph

    def _decided(
        self,
        name: str,
        plan: NetworkPlan,
        known: Known,
        context: SearchContext,
        *,
        again: bool = False,
    ) -> PlanResult | None:
        """The plan with the winner of each task, with the time of second looks and checks
        accounted for; None, with a note, where a task has no candidate that gives right results.

        Without these for the default layouts nothing can ship, which is an error.
        """
        searched = self.tuner.tasks if name == TUNED else None
        check = FinalistCheck(plan.tasks, known, context, searched)
        try:
            with self.budget.phase("verify"):
                checks = self._earlier_checks(plan.tasks) | self._checks
                picks = check.picks(checks, again=again)
        except NegativeVerdict as error:
            if name == TUNED:
                raise
            self.events(Note(message=f"The plan {name!r} is left out: {error.message}"))
            return None
        for key, (candidate, result) in picks.items():
            if result.check is not None:
                self._checks[key] = candidate, result.check
        if name != SHIPPED_BEFORE:
            self._looked_at.append((plan.tasks, known))
        chosen = {key: candidate for key, (candidate, _) in picks.items()}
        decided = PlanResult(name=name, plan=with_candidates(plan, chosen))
        return decided.with_tasks({key: result for key, (_, result) in picks.items()})

    def reconsider(self, factors: InNetworkFactors) -> PlanResult | None:
        """The graph tuner's choice by times that are corrected by how long kernels took in the
        networks of a race; None where layouts were not searched, or no time is left for it."""
        graph = self.graph
        if graph is None or not self._searched_graph or self.budget.remaining_s <= 0:
            return None
        with self.budget.phase("reconsider"):
            proposal = graph.reconsider(factors, self._looked_at)
        if proposal is None:
            return None
        self.proposals.append(proposal)
        plan, chosen = proposal.plan, proposal.plan.candidates
        known = _known_of(
            plan.tasks,
            graph.known,
            lambda key, candidate: candidate.implementation == chosen[key].implementation,
        )
        return self._decided(proposal.name, plan, known, graph.context)

    def _shipped_before(self, context: SearchContext) -> PlanResult | None:
        """The plan that shipped earlier; kernels whose templates changed since get the best of
        today's. None where that is the plan with our default settings."""
        shipped = self.store.shipped(self.network.key, self.placement.key)
        if shipped is None:
            return None
        try:
            plan = plan_of(shipped, self.network, self.placement)
        except StoreError as error:
            self.events(Note(message=f"What shipped before is left out: {error.message}"))
            return None
        known = self.tuner.known
        if plan.tasks.keys() != self.network.tasks.keys():
            known = NetworkTuner(plan.tasks, context).known
        chosen = plan.candidates
        known = _known_of(plan.tasks, known, lambda key, candidate: candidate == chosen[key])
        found = self._decided(SHIPPED_BEFORE, plan, known, context)
        usual = defaults(self.network.tasks, self.placement, context.max_error)
        is_usual = found is not None and found.plan == with_candidates(self.network.plan, usual)
        return None if is_usual else found

    def _earlier_checks(self, tasks: Tasks) -> dict[TaskKey, tuple[Candidate, KernelCheck]]:
        """Checks of these tasks that shipments already made, unless templates changed: this
        network's last one, and other networks' of kernels that had been measured before."""
        if self.tuner.outdated:
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
        known = self.tuner.known.get(key, ())
        return any(o.candidate == candidate and o.created_at <= moment for o in known)


def _anything(_key: TaskKey, _candidate: Candidate) -> bool:
    return True


def _known_of(
    tasks: Tasks, known: Known, wanted: Callable[[TaskKey, Candidate], bool] = _anything
) -> Known:
    """What is known of `tasks`: outcomes of wanted candidates only, where one of these was
    measured right, else all."""
    found: Known = {}
    for key in tasks:
        every = known.get(key, [])
        chosen = [outcome for outcome in every if wanted(key, outcome.candidate)]
        found[key] = chosen if ranked(chosen) else list(every)
    return found
