"""The exact solver where the problem is narrow enough; otherwise what finds and proves most.

Too wide a problem goes to the integer program under a time limit, then to the others until the gap
is closed. The best assignment is taken, with the best bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Found, NothingFound, Solver, TooWide, nothing_found
from tilewright.plan.assignment.solvers.dp import DynamicProgram
from tilewright.plan.assignment.solvers.exact import QUICK, Exact
from tilewright.plan.assignment.solvers.heuristics import Greedy
from tilewright.plan.assignment.solvers.milp import Milp
from tilewright.plan.assignment.solvers.pbqp import Pbqp

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
            bound = attempt.bound_ps
            if attempt.places is not None:
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
        note = "too wide for the exact solver"
        return Found(places=places, bound_ps=bound, solver=name, note=note)
