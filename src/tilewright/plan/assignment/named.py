"""The graph tuners under the names they had in TVM, over a problem of ours."""

from __future__ import annotations

from tilewright.core.errors import UsageError
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Solver
from tilewright.plan.assignment.solvers.dp import DynamicProgram
from tilewright.plan.assignment.solvers.pbqp import Pbqp
from tilewright.plan.assignment.solving import solve


class GraphTuner:
    """Solves a problem with one solver and keeps the solution."""

    def __init__(self, problem: Problem, solver: Solver) -> None:
        self.problem = problem
        self.solver = solver
        self._solution: Solution | None = None

    def run(self) -> Solution:
        """Solve; raises as `solve` does."""
        self._solution = solve(self.problem, self.solver)
        return self._solution

    @property
    def solution(self) -> Solution:
        """What `run` found; raises UsageError before it ran."""
        if self._solution is None:
            raise UsageError(f"{type(self).__name__} has not run yet.", hint="Call run() first.")
        return self._solution

    def get_optimal_records(self) -> dict[str, str]:
        """The value of every choice, by the operator it is made at."""
        return {
            variable.subject or variable.name: self.solution.assignment[variable.name]
            for variable in self.problem.variables
            if variable.kind == "choice"
        }


class DPTuner(GraphTuner):
    """Dynamic programming in topological order; raises TooWide above `max_num_states`."""

    def __init__(self, problem: Problem, *, max_num_states: int | None = None) -> None:
        solver = DynamicProgram()
        if max_num_states is not None:
            solver = DynamicProgram(max_num_states=max_num_states)
        super().__init__(problem, solver)


class PBQPTuner(GraphTuner):
    """The reductions R0, RI, RII and RN of partitioned boolean quadratic programs."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, Pbqp())
