"""The solvers by name, and solving with one of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from time import perf_counter
from typing import cast

from tilewright.core.plugins import Offers
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.elimination import lower_bound
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Solver, allowed, nothing_found
from tilewright.plan.assignment.solvers.exact import CHEAP_WORK, reduced

GROUP = "tilewright.solvers"
DEFAULT = "auto"
_BUILT_IN = ("auto", "exact", "milp", "pbqp", "dp", "greedy", "uniform", "history_best")

_BOUND_CELLS = 1 << 20


@cache
def solvers() -> Offers[Solver]:
    """All solvers by name, those of other packages too. Of ours, a module offers `SOLVER`."""
    package = "tilewright.plan.assignment.solvers"
    ours = {name: cast(Solver, import_module(f"{package}.{name}").SOLVER) for name in _BUILT_IN}
    return Offers(GROUP, kind="solver", built_in=ours, needs=("name", "find"))


def solver_named(name: str) -> Solver:
    """The solver with this name; raises UsageError for an unknown one, PluginError where a package
    offers it that is broken.

    Dashes and underscores count alike.
    """
    return solvers().named(name)


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
    if not allowed(objective):
        raise nothing_found(problem, chosen.name)
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
