"""What a scheduler is, and how one fails."""

from __future__ import annotations

from typing import Protocol

from tilewright.core.errors import ModelError, NegativeVerdict
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule


class Infeasible(ModelError):
    """Proven: no schedule keeps a limit. The message says which one, and the least that would
    do."""


class NothingFound(NegativeVerdict):
    """No schedule was found that keeps all limits; there may be one."""


class Scheduler(Protocol):
    """One way to answer a scheduling problem."""

    @property
    def name(self) -> str:
        """What it is selected by."""
        ...

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """A schedule that breaks no limit, within about `limit_s` seconds; one that needs no search
        takes less.

        Raises Infeasible where there is proven to be none, NothingFound where it found none.
        """
        ...
