"""`solve`: a saved problem of the graph tuner, solved without a compiler."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool
from pathlib import Path

from tilewright.core.results import SolveResult
from tilewright.plan.assignment.problem_file import read_problem
from tilewright.plan.assignment.solving import DEFAULT, SOLVERS, solve

_PS_PER_S = 10**12
_LISTEN_S = 0.1


def solve_file(path: Path, solver: str = DEFAULT) -> SolveResult:
    """Solve the problem in a file.

    Raises UsageError for an unknown solver, ModelError for a file that is missing, broken or
    without an allowed assignment, NegativeVerdict where the solver found none. Ctrl-C is heard at
    once, also inside HiGHS, which knows nothing of signals.
    """
    chosen = SOLVERS.named(solver)
    problem = read_problem(path)
    with ThreadPool(1) as beside:
        solving = beside.apply_async(solve, (problem, chosen))
        while not solving.ready():
            solving.wait(_LISTEN_S)
        solution = solving.get()
    by_role = problem.cost_by_role(solution.assignment)
    return SolveResult(
        name=problem.name or path.stem,
        solver=solution.solver,
        objective_s=solution.objective_ps / _PS_PER_S,
        bound_s=solution.bound_ps / _PS_PER_S,
        gap=solution.gap,
        solve_s=solution.solve_s,
        variables=len(problem.variables),
        tables=len(problem.tables),
        note=solution.note,
        by_role_s={role: cost / _PS_PER_S for role, cost in by_role.items()},
        assignment=dict(solution.assignment),
    )
