"""The solvers by name, and solving with one of them; `auto` takes what a problem allows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from time import perf_counter

from tilewright.core import plugins, results
from tilewright.core.solutions import PICOSECONDS, Solution
from tilewright.plan.assignment import factors, problem_file
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import (
    Found,
    NothingFound,
    Solver,
    TooWide,
    allowed,
    nothing_found,
)
from tilewright.plan.assignment.solvers.eliminating import (
    CHEAP_WORK,
    QUICK,
    DynamicProgram,
    Exact,
    Pbqp,
    reduced,
)
from tilewright.plan.assignment.solvers.heuristics import Greedy, HistoryBest, Uniform
from tilewright.plan.assignment.solvers.milp import Milp

_OTHERS: tuple[Solver, ...] = (DynamicProgram(), Pbqp(), Greedy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """`exact` is tried first; the others are for what is too wide for it."""

    name: str = "auto"
    exact: Exact = QUICK

    def find(self, problem: Problem) -> Found:
        """The best assignment that one of the solvers finds; `solver` says which."""
        try:
            return replace(self.exact.find(problem), solver=self.exact.name)
        except TooWide:
            return self._best_of_many(problem)

    def _best_of_many(self, problem: Problem) -> Found:
        milp, bound = Milp(), 0
        found: list[tuple[int, str, Sequence[int]]] = []
        with suppress(TooWide):
            attempt = milp.attempt(problem)
            bound = attempt.bound_ps or 0
            if attempt.places:
                found.append((problem.cost_at(attempt.places), milp.name, attempt.places))
        for solver in _OTHERS:
            if found and min(found)[0] == bound:
                break
            with suppress(TooWide, NothingFound):
                answer = solver.find(problem)
                found.append((problem.cost_at(answer.places), solver.name, answer.places))
                bound = max(bound, answer.bound_ps or 0)
        if not found:
            raise nothing_found(problem, self.name)
        _, name, places = min(found, key=lambda each: each[0])
        return Found(
            places=places, bound_ps=bound, solver=name, note="too wide for the exact solver"
        )


DEFAULT = "auto"
_BUILT_IN: tuple[Solver, ...] = (
    *(Auto(), Exact(), Milp(), Pbqp(), DynamicProgram()),
    *(Greedy(), Uniform(), HistoryBest()),
)
_BOUND_CELLS = 1 << 20
_LISTEN_S = 0.1


SOLVERS = plugins.Offers[Solver](
    "tilewright.solvers",
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
        bound = max(bound, factors.eliminate(network, order.variables, _BOUND_CELLS).least)
    return Solution(
        solver=found.solver or chosen.name,
        assignment=assignment,
        objective_ps=objective,
        bound_ps=min(bound, objective),
        solve_s=elapsed,
        note=found.note,
    )


def solve_file(path: Path, solver: str = DEFAULT) -> results.SolveResult:
    """Solve the problem in a file.

    Raises UsageError for an unknown solver, ModelError for a file that is missing, broken or
    without an allowed assignment, NegativeVerdict where the solver found none. Ctrl-C is heard at
    once, also inside HiGHS, which knows nothing of signals.
    """
    chosen = SOLVERS.named(solver)
    problem = problem_file.read_problem(path)
    with ThreadPool(1) as beside:
        solving = beside.apply_async(solve, (problem, chosen))
        while not solving.ready():
            solving.wait(_LISTEN_S)
        solution = solving.get()
    by_role = problem.cost_by_role(solution.assignment)
    return results.SolveResult(
        name=problem.name or path.stem,
        solver=solution.solver,
        objective_s=solution.objective_ps / PICOSECONDS,
        bound_s=solution.bound_ps / PICOSECONDS,
        gap=solution.gap,
        solve_s=solution.solve_s,
        variables=len(problem.variables),
        tables=len(problem.tables),
        note=solution.note,
        by_role_s={role: cost / PICOSECONDS for role, cost in by_role.items()},
        assignment=dict(solution.assignment),
    )
