"""The solvers by name, and solving with one of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from time import perf_counter
from typing import cast

from tilewright.core.errors import UsageError, close_matches
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.elimination import lower_bound
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Solver
from tilewright.plan.assignment.solvers.exact import CHEAP_WORK, reduced

DEFAULT = "auto"
SOLVERS = ("auto", "exact", "milp", "pbqp", "dp", "greedy", "uniform", "history_best")

_BOUND_CELLS = 1 << 20


@cache
def solvers() -> Mapping[str, Solver]:
    """All solvers by name."""
    package = "tilewright.plan.assignment.solvers"
    return {name: cast(Solver, import_module(f"{package}.{name}").SOLVER) for name in SOLVERS}


def solver_named(name: str) -> Solver:
    """The solver with this name; raises UsageError for an unknown one.

    Dashes and underscores count alike.
    """
    found = solvers().get(name.replace("-", "_"))
    if found is None:
        raise UsageError(f"no solver is called {name!r}", hint=close_matches(name, SOLVERS))
    return found


def solve(problem: Problem, solver: str | Solver = DEFAULT) -> Solution:
    """Solve a problem; where a solver leaves a gap, the bound of mini-buckets is tried as well.

    Raises Infeasible where no assignment is allowed, NothingFound where the solver found none,
    TooWide where the problem does not fit the solver.
    """
    chosen = solver_named(solver) if isinstance(solver, str) else solver
    start = perf_counter()
    found = chosen.find(problem)
    elapsed = perf_counter() - start
    assignment = problem.assignment(found.places)
    objective = problem.cost(assignment)
    bound = found.bound_ps or 0
    if bound < objective:
        bound = max(bound, least_cost(problem))
    return Solution(
        solver=found.solver or chosen.name,
        assignment=assignment,
        objective_ps=objective,
        bound_ps=min(bound, objective),
        solve_s=elapsed,
        note=found.note,
    )


def least_cost(problem: Problem) -> int:
    """A lower bound in picoseconds: the optimum where the graph is narrow, less elsewhere."""
    network, order = reduced(problem, most_work=CHEAP_WORK)
    return lower_bound(network, order.variables, _BOUND_CELLS)
