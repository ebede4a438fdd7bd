"""Choosing layouts and algorithms over a whole network: solve, measure, solve again.

The tasks of the default layouts were tuned before. Other layouts are first looked at uniformly (as
many channels in a block as two or four registers hold), which gives the model of the costs its
diagonal; what a solution and its rivals then use is measured before it is believed, in up to four
rounds, as a rule until a solution uses nothing but measured times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.core.budget import Budget
from tilewright.core.element_types import element_type
from tilewright.core.errors import TilewrightError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.forms import PLAIN, Form, blocked, channel_block
from tilewright.core.records import Outcome, Placement
from tilewright.cost.floors import Peaks
from tilewright.graph.arrange import arrange
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.tensor import TensorType
from tilewright.kernels.spaces import spaces
from tilewright.measure.base import Measurer
from tilewright.models.prepared import PreparedNetwork
from tilewright.plan.assignment.solution import NothingFound, TooWide
from tilewright.plan.assignment.solving import DEFAULT as AUTO
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import plan_with
from tilewright.search.layout_costs import LayoutCosts
from tilewright.search.places import Places
from tilewright.search.tuning import NetworkTuner, TuningTerms
from tilewright.search.winners import Searched
from tilewright.store.base import Store

CHOSEN = "chosen"
RECONSIDERED = "reconsidered"
RIVALS = ("uniform", "history_best")
_ROUNDS = 4
_LATER = 0.5
_WIDER = (2, 4)
_DOUBT = 2.0
"""What estimates are multiplied by once no time is left to measure. Seen in short searches: a
network of 167 ms for 105 promised, one of 25 for 2.3."""


@dataclass(slots=True, kw_only=True)
class GraphSearch:
    """The graph tuner for one network that has its default layouts.

    `known` holds what is believed of every task in any layouts; `measurements`, `failures` and
    `model_s` count what the search itself added; `converged` says that more would not help: the
    last solution used measured times only, and its tasks had nothing more to gain.
    """

    network: PreparedNetwork
    placement: Placement
    store: Store
    measurer: Measurer
    terms: TuningTerms
    known: dict[TaskKey, list[Outcome]]
    solver: str = "auto"
    costs: LayoutCosts = field(init=False)
    measurements: int = 0
    failures: int = 0
    model_s: float = 0.0
    converged: bool = False
    _settled: bool = False
    _asked: set[TaskKey] = field(default_factory=set[TaskKey])

    def __post_init__(self) -> None:
        self.costs = LayoutCosts(placement=self.placement, max_error=self.terms.max_error)
        self._learn(self.network.tasks)

    @property
    def problem(self) -> NetworkProblem:
        """The problem with the costs as they are known now."""
        return NetworkProblem(
            network=self.network.fused,
            usual=self.network.forms,
            placement=self.placement,
            times=self.costs,
            name=self.network.model.name,
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

    def run(
        self,
        budget: Budget,
        peaks: Peaks,
        *,
        stop: Callable[[], bool],
        checkpoint: Callable[[], None],
    ) -> list[PlanResult]:
        """The chosen assignment first, then its rivals. What is left of the budget in the end goes
        to the tasks of the chosen one; where that leaves some unmeasured, estimates are doubted."""

        def search(tasks: Mapping[TaskKey, Task]) -> None:
            self._search(tasks, budget, peaks, stop=stop, checkpoint=checkpoint)

        with budget.keeping(_LATER):
            search(self._uniform_tasks())
        for _ in range(_ROUNDS):
            new = self._unknown(self.proposals())
            if not new or budget.exhausted or stop():
                break
            with budget.keeping(_LATER):
                search(new)
        proposals = self.proposals()
        if not (budget.exhausted or stop()):
            search(proposals[0].plan.tasks)
            proposals = self.proposals()
            self.converged = self._settled and proposals[0].measured
        if not proposals[0].measured:
            self.costs.doubt = _DOUBT
            proposals = self.proposals()
        return proposals

    def reconsider(self, places: Places, looked_at: Iterable[Searched] = ()) -> PlanResult | None:
        """The best assignment by what was measured, with all times corrected by the kernels'
        places in networks; None where there is none. What was `looked_at` again since the search
        is believed first."""
        costs = self.costs.corrected(places)
        for searched in looked_at:
            self.known |= searched.known
            self._learn(searched.fused, costs)
        problem = replace(self.problem, times=costs)
        try:
            found = plan_with(self.solver, problem, RECONSIDERED)
        except TilewrightError as error:
            self.terms.events(Note(message=f"Nothing is reconsidered: {error.message}"))
            return None
        return found if found.measured else None

    def _unknown(self, proposals: Sequence[PlanResult]) -> dict[TaskKey, Task]:
        """The tasks that proposals use and nothing was measured of yet."""
        return {
            key: task
            for proposal in proposals
            for key, task in proposal.plan.tasks.items()
            if key not in self._asked and not self._tried(task)
        }

    def proposals(self) -> list[PlanResult]:
        """The best assignment by what is known now, then its rivals."""
        problem = self.problem
        detail = f"{len(problem.problem.variables)} variables"
        self.terms.events(Stage(name="solve", detail=detail))
        return proposals_of(problem, self.solver, self.terms.events)

    def _uniform_tasks(self) -> dict[TaskKey, Task]:
        """The tasks that come up when all blocks are wider."""
        options, types = self.problem.options, self.network.graph.types
        usual = self.network.forms
        found: dict[TaskKey, Task] = {}
        for factor in _WIDER:
            forms = {
                tensor: wider
                for tensor, allowed in options.items()
                if (wider := self._blocked(types[tensor], factor)) in allowed
                and channel_block(usual.get(tensor, PLAIN))
            }
            found |= arrange(self.network.fused, {**usual, **forms}).tasks
        return {key: task for key, task in found.items() if key not in self.network.tasks}

    def _blocked(self, kind: TensorType, factor: int) -> Form:
        """Blocks of as many channels as `factor` registers hold."""
        return blocked(factor * self.placement.target.lanes(element_type(kind.dtype).computed_in))

    def _recall(self, tasks: Mapping[TaskKey, Task]) -> bool:
        """Learn what the store knows of tasks; whether that is anything."""
        tuner = NetworkTuner(tasks, self.placement, self.store, self.measurer, self.terms)
        self.known |= tuner.known
        self._learn(tasks)
        return any(tuner.known[key] for key in tasks)

    def _search(
        self,
        tasks: Mapping[TaskKey, Task],
        budget: Budget,
        peaks: Peaks,
        *,
        stop: Callable[[], bool],
        checkpoint: Callable[[], None],
    ) -> None:
        """Tune tasks with what may be spent now, and learn what comes of it."""
        self.terms.events(Stage(name="tune", detail=f"{len(tasks)} tasks in other layouts"))
        self.store.add_workloads([task.workload for task in tasks.values()])
        given = {key: self.known[key] for key in tasks if key in self.known}
        tuner = NetworkTuner(tasks, self.placement, self.store, self.measurer, self.terms, given)
        before = self.measurements, self.failures

        def count() -> None:
            self.measurements = before[0] + tuner.measurements
            self.failures = before[1] + tuner.failures
            checkpoint()

        if not budget.exhausted:
            self._settled = tuner.run(budget, peaks, stop=stop, checkpoint=count)
            self._asked |= {key for key in tasks if len(tuner.known[key]) > len(given.get(key, ()))}
        self.measurements = before[0] + tuner.measurements
        self.failures = before[1] + tuner.failures
        self.model_s += tuner.model_s
        self.known |= tuner.known
        self._learn(tasks)

    def _learn(self, tasks: Mapping[TaskKey, Task], costs: LayoutCosts | None = None) -> None:
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
        offered = spaces(task.workload, task.forms, self.placement, self.terms.max_error)
        return all(space.spec.name in tried for space in offered)


def proposals_of(problem: NetworkProblem, planner: str, events: EventSink) -> list[PlanResult]:
    """What the planner of that name chooses, then what the rivals choose.

    A rival that finds nothing is noted. Where the planner finds nothing, the default one stands in.
    """
    try:
        found = [plan_with(planner, problem, CHOSEN)]
    except (NothingFound, TooWide) as error:
        if planner == AUTO:
            raise
        events(Note(message=f"{error.message} The solver {AUTO} takes over."))
        found = [plan_with(AUTO, problem, CHOSEN)]
    for name in RIVALS:
        try:
            found.append(plan_with(name, problem, name))
        except TilewrightError as error:
            events(Note(message=f"no {name} assignment: {error.message}"))
    return found
