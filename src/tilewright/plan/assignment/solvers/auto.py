"""The exact solver where the problem is narrow enough; otherwise what finds and proves most.

Too wide a problem goes to the integer program under a time limit, then to the others until the gap
is closed. The best assignment is taken, with the best bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import (
    Found,
    NothingFound,
    Solver,
    TooWide,
    nothing_found,
)
from tilewright.plan.assignment.solvers.dp import DynamicProgram
from tilewright.plan.assignment.solvers.exact import Exact
from tilewright.plan.assignment.solvers.greedy import Greedy
from tilewright.plan.assignment.solvers.milp import Milp
from tilewright.plan.assignment.solvers.pbqp import Pbqp
from tilewright.plan.assignment.solvers.within import MOST_CELLS, MOST_WORK


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """`time_limit_s` is that of the integer program; the limits are those of the exact solver."""

    name: str = "auto"
    most_cells: int = MOST_CELLS
    most_work: int = MOST_WORK
    time_limit_s: float = 60.0

    def find(self, problem: Problem) -> Found:
        """The best assignment that one of the solvers finds; `solver` says which."""
        exact = Exact(most_cells=self.most_cells, most_work=self.most_work)
        try:
            found = exact.find(problem)
            return Found(
                places=found.places, bound_ps=found.bound_ps, solver=exact.name, note=found.note
            )
        except TooWide:
            return self._best_of_many(problem)

    def _best_of_many(self, problem: Problem) -> Found:
        bound: int | None = None
        candidates: list[tuple[int, str, Found]] = []
        try:
            milp = Milp(time_limit_s=self.time_limit_s)
            attempt = milp.attempt(problem)
            bound = attempt.bound_ps
            if attempt.places is not None:
                found = Found(places=attempt.places)
                candidates.append((_cost(problem, found), milp.name, found))
        except TooWide:
            pass
        others: tuple[Solver, ...] = (DynamicProgram(), Pbqp(), Greedy())
        for solver in others:
            if candidates and min(candidates)[0] == bound:
                break
            try:
                found = solver.find(problem)
            except (TooWide, NothingFound):
                continue
            candidates.append((_cost(problem, found), solver.name, found))
            if found.bound_ps is not None:
                bound = max(bound or 0, found.bound_ps)
        if not candidates:
            raise nothing_found(problem, self.name)
        _, name, best = min(candidates, key=lambda each: each[0])
        return Found(
            places=best.places, bound_ps=bound, solver=name, note="too wide for the exact solver"
        )


def _cost(problem: Problem, found: Found) -> int:
    return problem.cost(problem.assignment(found.places))


SOLVER = Auto()
