"""Choosing layouts and algorithms over a whole network: solve, measure, solve again.

The tasks of the default layouts were tuned before. Other layouts are first looked at uniformly (as
many channels in a block as two or four registers hold), which gives the model of the costs its
diagonal; what a solution and its rivals then use is measured before it is believed, in up to four
rounds, as a rule until a solution uses nothing but measured times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.core import element_types, errors
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.forms import PLAIN, blocked, channel_block, stored_in
from tilewright.graph.arrange import arrange
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.half_forms import in_halves
from tilewright.kernels.halves import half_types
from tilewright.kernels.spaces import spaces
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.assignment.budgeted import Front
from tilewright.plan.assignment.solution import NothingFound, TooWide
from tilewright.plan.assignment.solving import DEFAULT as AUTO
from tilewright.plan.mixture import Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import mixed_plan, plan_with
from tilewright.search.context import SearchContext
from tilewright.search.layout_costs import InNetworkFactors, LayoutCosts
from tilewright.search.tuning import Known, NetworkTuner

CHOSEN = "chosen"
RECONSIDERED = "reconsidered"
RIVALS = ("uniform", "history_best")
_ROUNDS = 4
_LATER = 0.5
_WIDER = (2, 4)
_DOUBT = 2.0
"""What estimates are multiplied by once no time is left to measure. Seen in short searches: a
network of 167 ms for 105 promised, one of 25 for 2.3."""

Tasks = Mapping[TaskKey, Task]


@dataclass(slots=True, kw_only=True)
class GraphSearch:
    """The graph tuner for one network that has its default layouts.

    `known` holds what is believed of every task in any layouts. `converged` says that more would
    not help: the last solution used measured times only, and its tasks had nothing more to gain.
    With a `mixture` types are chosen, too; `front` is then what the last choice is from.
    """

    network: PreparedNetwork
    context: SearchContext
    known: Known
    solver: str = AUTO
    mixture: Mixture | None = None
    front: Front | None = None
    costs: LayoutCosts = field(init=False)
    converged: bool = False
    _settled: bool = False
    _asked: set[TaskKey] = field(default_factory=set[TaskKey])

    def __post_init__(self) -> None:
        context = self.context
        self.costs = LayoutCosts(placement=context.placement, max_error=context.max_error)
        self._learn(self.network.tasks)

    @property
    def problem(self) -> NetworkProblem:
        """The problem with the costs as they are known now."""
        return NetworkProblem(
            network=self.network.fused,
            usual=self.network.forms,
            placement=self.context.placement,
            times=self.costs,
            name=self.network.model.name,
            mixture=self.mixture,
        )

    def recalled(self) -> list[PlanResult]:
        """The proposals by what the store knows; nothing is measured."""
        self._recall(self._uniform_tasks())
        proposals = self.proposals()
        for _ in range(_ROUNDS):
            used = {k: t for p in proposals for k, t in p.plan.tasks.items()}
            if not self._recall({k: t for k, t in used.items() if k not in self.known}):
                break
            proposals = self.proposals()
        return proposals

    def run(self) -> list[PlanResult]:
        """The chosen assignment first, then its rivals. What is left of the budget in the end goes
        to the tasks of the chosen one; where that leaves some unmeasured, estimates are doubted."""
        context = self.context
        with context.budget.keeping(_LATER):
            self._search(self._uniform_tasks())
        for _ in range(_ROUNDS):
            new = self._unknown(self.proposals())
            if not new or context.ends:
                break
            with context.budget.keeping(_LATER):
                self._search(new)
        proposals = self.proposals()
        if not context.ends:
            self._search(proposals[0].plan.tasks)
            proposals = self.proposals()
            self.converged = self._settled and proposals[0].measured
        if not proposals[0].measured:
            self.costs.doubt = _DOUBT
            proposals = self.proposals()
        return proposals

    def reconsider(
        self, factors: InNetworkFactors, looked_at: Sequence[tuple[Tasks, Known]] = ()
    ) -> PlanResult | None:
        """The best assignment by what was measured, with all times corrected by how long kernels
        take in networks; None where there is none. What was `looked_at` again since the search is
        believed first."""
        costs = self.costs.corrected(factors)
        for tasks, known in looked_at:
            self.known |= known
            self._learn(tasks, costs)
        problem = replace(self.problem, times=costs)
        try:
            found = self._planned(problem, RECONSIDERED)[0]
        except errors.TilewrightError as error:
            self.context.note(
                f"The choice is not made again with the times of the race: {error.message}"
            )
            return None
        return found if found.measured else None

    def proposals(self) -> list[PlanResult]:
        """The best assignment by what is known now, then its rivals."""
        if self.mixture is None:
            return proposals_of(self.problem, self.solver, self.context.events)
        problem = self.problem
        self.context.events(
            Stage(name="solve", detail=f"{len(problem.problem.variables)} variables")
        )
        found, self.front = self._planned(problem, CHOSEN)
        return [found]

    def _planned(self, problem: NetworkProblem, name: str) -> tuple[PlanResult, Front | None]:
        """What the solver chooses, within the mixture's budget where there is one, with the front
        that it is from."""
        if self.mixture is None:
            return plan_with(self.solver, problem, name), None
        return mixed_plan(problem, name, self.solver)

    def _unknown(self, proposals: Sequence[PlanResult]) -> Tasks:
        """The tasks that proposals use and nothing was measured of yet."""
        return {
            key: task
            for proposal in proposals
            for key, task in proposal.plan.tasks.items()
            if key not in self._asked and not self._tried(task)
        }

    def _uniform_tasks(self) -> Tasks:
        """The tasks that come up when all blocks are wider, so many registers of channels each; in
        a mixture, those of a network in halves."""
        if self.mixture is not None:
            halves = half_types(self.context.placement)
            return {k: task for half in halves for k, task in self._in_halves(half).items()}
        options, types, usual = self.problem.options, self.network.graph.types, self.network.forms
        found: dict[TaskKey, Task] = {}
        for factor in _WIDER:
            forms = dict(usual)
            for tensor, allowed in options.items():
                computed_in = element_types.element_type(types[tensor].dtype).computed_in
                lanes = self.context.placement.target.lanes(computed_in)
                wider = stored_in(blocked(factor * lanes), usual.get(tensor, PLAIN).dtype)
                if wider in allowed and channel_block(usual.get(tensor, PLAIN)):
                    forms[tensor] = wider
            found |= arrange(self.network.fused, forms).tasks
        return {key: task for key, task in found.items() if key not in self.network.tasks}

    def _in_halves(self, half: str) -> Tasks:
        """The tasks of the network with all that may be in one half type."""
        fused, mixture = self.network.fused, self.mixture
        placement = self.context.placement
        lines = choose_forms(fused, placement.target, placement.resources, half)
        single = {t for t in fused.graph.types if mixture is None or not mixture.stores(t, half)}
        halves = in_halves(fused, lines, placement, single, half)
        stored = {t: f for t, f in halves.items() if f.dtype == half}
        return arrange(fused, {**self.network.forms, **stored}).tasks

    def _recall(self, tasks: Tasks) -> bool:
        """Learn what the store knows of tasks; whether that is anything."""
        recalled = NetworkTuner(tasks, self.context).known
        self.known |= recalled
        self._learn(tasks)
        return any(recalled[key] for key in tasks)

    def _search(self, tasks: Tasks) -> None:
        """Tune tasks with what may be spent now, and learn what comes of it."""
        self.context.events(Stage(name="tune", detail=f"{len(tasks)} tasks in other layouts"))
        self.context.store.add_workloads([task.workload for task in tasks.values()])
        given = {key: self.known[key] for key in tasks if key in self.known}
        tuner = NetworkTuner(tasks, self.context, given)
        if not self.context.budget.exhausted:
            self._settled = tuner.run()
            self._asked |= {key for key in tasks if len(tuner.known[key]) > len(given.get(key, ()))}
        self.known |= tuner.known
        self._learn(tasks)

    def _learn(self, tasks: Tasks, costs: LayoutCosts | None = None) -> None:
        """Tell the costs; the default layouts stay possible even where everything failed."""
        for key, task in tasks.items():
            (costs or self.costs).learn(
                task.workload,
                task.forms,
                self.known.get(key, []),
                searched=key in self._asked or self._tried(task),
                needed=key in self.network.tasks,
            )

    def _tried(self, task: Task) -> bool:
        """Whether every implementation worth it was tried for a task."""
        tried = {outcome.candidate.implementation for outcome in self.known.get(task.key, ())}
        context = self.context
        offered = spaces(task.workload, task.forms, context.placement, context.max_error)
        return all(space.spec.name in tried for space in offered)


def proposals_of(problem: NetworkProblem, planner: str, events: EventSink) -> list[PlanResult]:
    """What the planner of that name chooses, then what the rivals choose.

    A rival that finds nothing is noted. Where the planner finds nothing, the default one stands in.
    """
    events(Stage(name="solve", detail=f"{len(problem.problem.variables)} variables"))
    try:
        found = [plan_with(planner, problem, CHOSEN)]
    except (NothingFound, TooWide) as error:
        if planner == AUTO:
            raise
        events(Note(message=f"{error.message} The solver {AUTO} is used instead."))
        found = [plan_with(AUTO, problem, CHOSEN)]
    for name in RIVALS:
        try:
            found.append(plan_with(name, problem, name))
        except errors.TilewrightError as error:
            events(Note(message=f"There is no assignment {name}: {error.message}"))
    return found
