"""What a solver gives, and how it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.core.errors import ModelError, NegativeVerdict
from tilewright.plan.assignment.problem import FORBIDDEN, Problem


class Infeasible(ModelError):
    """Proven: every assignment is forbidden by some table."""


class NothingFound(NegativeVerdict):
    """A solver that may fail found no allowed assignment; there may be one."""


class TooWide(NegativeVerdict):
    """The tables that a solver would need are larger than its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a solver itself hands back: places of the values in the variables' order.

    `bound_ps` is what the solver proves, None when it proves nothing.
    """

    places: Sequence[int]
    bound_ps: int | None = None
    solver: str = ""
    note: str = ""


class Solver(Protocol):
    """One way to solve a problem.

    Raises Infeasible where no assignment is allowed, NothingFound where it found none, TooWide
    where it does not fit.
    """

    @property
    def name(self) -> str:
        """What it is selected by."""
        ...

    def find(self, problem: Problem) -> Found:
        """An allowed assignment."""
        ...


def infeasible(problem: Problem) -> Infeasible:
    """The error for a problem without an allowed assignment."""
    return Infeasible(
        f"{problem.title} has no allowed assignment: some table forbids every one.",
        hint="Give each forbidden combination (null) an alternative, the plain layout say.",
    )


def nothing_found(problem: Problem, name: str) -> NothingFound:
    """The error for a solver that found no allowed assignment."""
    return NothingFound(
        f"{name} found no allowed assignment of {problem.title}; there may be one.",
        hint="The solvers exact and milp find one where there is one.",
    )


def allowed(costs: int) -> bool:
    """Whether a sum of costs has nothing forbidden in it."""
    return costs < FORBIDDEN
