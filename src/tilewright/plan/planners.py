"""Planners: from the problem of a network to a plan of it.

A solver knows no network: it answers a problem with an assignment. The planner of a solver decodes
that into forms of tensors, conversions where a reader wants another form, and a candidate at each
call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from tilewright.core.forms import PLAIN
from tilewright.core.plugins import Offers, PluginError
from tilewright.graph.arrange import arrange
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.plan_result import PlanResult
from tilewright.kernels import plans
from tilewright.plan.assignment.budgeted import Front, fastest_within
from tilewright.plan.assignment.solution import Solver
from tilewright.plan.assignment.solving import SOLVERS, solve
from tilewright.plan.network_problem import NetworkProblem


class Planner(Protocol):
    """One way to plan a network."""

    @property
    def name(self) -> str:
        """What it is selected by."""
        ...

    def plan(self, problem: NetworkProblem, name: str) -> PlanResult:
        """A plan called `name`, with the solution that it comes from: an assignment of the
        network's problem, its cost, and a proven lower bound of the cost.

        Raises what solvers raise: Infeasible, NothingFound, TooWide.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPlanner:
    """Decodes what a solver of assignment problems answers; it has the solver's name."""

    solver: Solver

    @property
    def name(self) -> str:
        """The solver's name."""
        return self.solver.name

    def plan(self, problem: NetworkProblem, name: str) -> PlanResult:
        """The plan of the solver's assignment."""
        solution = solve(problem.problem, self.solver)
        chosen = problem.choices_of(solution.assignment)
        return PlanResult(
            name=name,
            plan=planned(problem, solution.assignment),
            solution=solution,
            measured=all(choice.time.measured for choice in chosen.values()),
        )


PLANNERS = Offers[Planner](
    "tilewright.planners", kind="planner", built_in={}, needs=("name", "plan")
)
"""Planners that are more than a solver; all of them come from other packages."""


def planner_named(name: str) -> Planner:
    """The planner with this name, else that of the solver with it: every solver of assignment
    problems gives one.

    Raises UsageError for an unknown name, PluginError where a package offers it that is broken.
    """
    planner = PLANNERS.find(name)
    if planner is not None:
        return planner
    solver = SOLVERS.find(name)
    if solver is None:
        raise SOLVERS.unknown(name, PLANNERS.names())
    return AssignmentPlanner(solver=solver)


def plan_with(planner: str, problem: NetworkProblem, name: str) -> PlanResult:
    """What the planner called `planner` gives, as a plan that goes by `name`.

    Raises as `planner_named` and as planners do, and PluginError for a plan without a solution
    or for several lanes.
    """
    found = planner_named(planner).plan(problem, name)
    if found.solution is None:
        raise PluginError(
            f"the planner {planner!r} does not say which solution its plan comes from",
            hint="tilewright.testing.planners has the checks that a planner must pass.",
        )
    if len(found.plan.lanes) != 1:
        raise PluginError(
            f"the planner {planner!r} gives a plan of {len(found.plan.lanes)} lanes, and networks "
            "are compiled for one",
            hint="Choose another with --solver.",
        )
    return found


def mixed_plan(problem: NetworkProblem, name: str, solver: str) -> tuple[PlanResult, Front]:
    """The fastest plan of a network whose mixture's noise is within its budget, and the front that
    it is from. Raises as solvers do."""
    assert problem.mixture is not None, "there is no budget of noise"
    costs, noises = problem.problem, problem.noises
    began = perf_counter()
    front = fastest_within(costs, noises, problem.mixture.budget, solver)
    solution = replace(
        front.chosen.solution,
        objective_ps=front.chosen.cost_ps,
        bound_ps=front.bound_ps,
        solve_s=perf_counter() - began,
    )
    chosen = problem.choices_of(solution.assignment)
    found = PlanResult(
        name=name,
        plan=planned(problem, solution.assignment),
        solution=solution,
        measured=all(c.time.measured or not c.time.searchable for c in chosen.values()),
    )
    return found, front


def planned(problem: NetworkProblem, assignment: Mapping[str, str]) -> NetworkPlan:
    """The plan that an assignment of a network's problem means."""
    network, forms = problem.network, problem.forms_of(assignment)
    chosen = problem.choices_of(assignment)
    lying = {
        call.name: tuple(forms.get(tensor, PLAIN) for tensor in call.inputs)
        for call in network.calls
    }
    wanted = {
        name: choice.ports[:-1]
        for name, choice in chosen.items()
        if choice.ports[:-1] != lying[name]
    }
    arranged = arrange(network, {**problem.usual, **forms}, wanted)
    implementations = {name: choice.implementation for name, choice in chosen.items()}
    times, calls = problem.times, arranged.calls
    candidates = {
        item.call.name: times.candidate(
            item.call.workload, item.forms, implementations.get(item.call.name)
        )
        for item in calls
    }
    first = {item.task.key: candidates[item.call.name] for item in reversed(calls)}
    plan = plans.in_sequence(arranged, lane_of(problem.placement), first)
    apart = {c.name: candidates[c.name] for c in plan.calls if c.candidate != candidates[c.name]}
    return plans.with_each(plan, apart) if apart else plan
