"""What other solvers solve a smaller problem with."""

from __future__ import annotations

from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.solution import TooWide
from tilewright.plan.assignment.solvers.exact import Exact
from tilewright.plan.assignment.solvers.pbqp import Pbqp

MOST_CELLS = 1 << 25
MOST_WORK = 5 * 10**8
"""What the exact solver is given where there is a choice: a few seconds."""


def best_within(problem: Problem) -> dict[str, str]:
    """The best assignment; a good one where the exact solver would take long.

    Raises Infeasible where there is none, NothingFound where none was found.
    """
    try:
        found = Exact(most_cells=MOST_CELLS, most_work=MOST_WORK).find(problem)
    except TooWide:
        found = Pbqp().find(problem)
    return problem.assignment(found.places)
