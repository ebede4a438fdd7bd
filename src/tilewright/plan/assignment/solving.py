"""The solvers by name, and solving with one of them."""

from __future__ import annotations

from time import perf_counter

from tilewright.core.plugins import Offers
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.elimination import eliminate
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Solver, allowed, nothing_found
from tilewright.plan.assignment.solvers.auto import Auto
from tilewright.plan.assignment.solvers.dp import DynamicProgram
from tilewright.plan.assignment.solvers.exact import CHEAP_WORK, Exact, reduced
from tilewright.plan.assignment.solvers.heuristics import Greedy, HistoryBest, Uniform
from tilewright.plan.assignment.solvers.milp import Milp
from tilewright.plan.assignment.solvers.pbqp import Pbqp

GROUP = "tilewright.solvers"
DEFAULT = "auto"
_BUILT_IN: tuple[Solver, ...] = (
    *(Auto(), Exact(), Milp(), Pbqp(), DynamicProgram()),
    *(Greedy(), Uniform(), HistoryBest()),
)
_BOUND_CELLS = 1 << 20


SOLVERS = Offers[Solver](
    GROUP,
    kind="solver",
    built_in={solver.name: solver for solver in _BUILT_IN},
    needs=("name", "find"),
)
"""All solvers by name, those of other packages too."""


def solve(problem: Problem, solver: str | Solver = DEFAULT) -> Solution:
    """Solve a problem; where a solver leaves a gap, the bound of mini-buckets is tried as well.

    Raises UsageError for an unknown solver, PluginError where a package offers it that is broken,
    Infeasible where no assignment is allowed, NothingFound where the solver found none, TooWide
    where the problem does not fit the solver.
    """
    chosen = SOLVERS.named(solver) if isinstance(solver, str) else solver
    start = perf_counter()
    found = chosen.find(problem)
    elapsed = perf_counter() - start
    assignment = problem.assignment(found.places)
    objective = problem.cost(assignment)
    if not allowed(objective):
        raise nothing_found(problem, chosen.name)
    bound = found.bound_ps or 0
    if bound < objective:
        network, order = reduced(problem, most_work=CHEAP_WORK)
        bound = max(bound, eliminate(network, order.variables, _BOUND_CELLS).least)
    return Solution(
        solver=found.solver or chosen.name,
        assignment=assignment,
        objective_ps=objective,
        bound_ps=min(bound, objective),
        solve_s=elapsed,
        note=found.note,
    )
