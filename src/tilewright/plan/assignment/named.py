"""The graph tuners under the names they had in TVM, over a problem of ours."""

from __future__ import annotations

from tilewright.core import errors, solutions
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import Solver
from tilewright.plan.assignment.solvers.eliminating import DynamicProgram, Pbqp
from tilewright.plan.assignment.solving import solve


class GraphTuner:
    """Solves a problem with one solver; `solution` is what `run` found."""

    solution: solutions.Solution | None = None

    def __init__(self, problem: Problem, solver: Solver) -> None:
        self.problem = problem
        self.solver = solver

    def run(self) -> solutions.Solution:
        """Solve; raises as `solve` does."""
        self.solution = solve(self.problem, self.solver)
        return self.solution

    def get_optimal_records(self) -> dict[str, str]:
        """The value of every choice, by the operator it is made at; UsageError before `run`."""
        if self.solution is None:
            raise errors.UsageError(
                f"{type(self).__name__} has not run yet.", hint="Call run() first."
            )
        return {
            variable.subject or variable.name: self.solution.assignment[variable.name]
            for variable in self.problem.variables
            if variable.kind == "choice"
        }


class DPTuner(GraphTuner):
    """Dynamic programming in topological order; raises TooWide above `max_num_states`."""

    def __init__(self, problem: Problem, *, max_num_states: int = 1 << 23) -> None:
        super().__init__(problem, DynamicProgram(max_num_states=max_num_states))


class PBQPTuner(GraphTuner):
    """The reductions R0, RI, RII and RN of partitioned boolean quadratic programs."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, Pbqp())
