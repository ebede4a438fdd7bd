"""What a solver answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PICOSECONDS = 1e12
"""Costs of problems are whole picoseconds; so many are a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An allowed assignment with what is proven about it.

    `objective_ps` is the cost of the assignment. No assignment costs less than `bound_ps`, which is
    0 where nothing is known. `solve_s` is the time of the solver without that of a bound computed
    for it afterwards.
    """

    solver: str
    assignment: Mapping[str, str]
    objective_ps: int
    bound_ps: int = 0
    solve_s: float = 0.0
    note: str = ""

    @property
    def objective_s(self) -> float:
        """The cost of the assignment in seconds."""
        return self.objective_ps / PICOSECONDS

    @property
    def bound_s(self) -> float:
        """The bound in seconds."""
        return self.bound_ps / PICOSECONDS

    @property
    def gap(self) -> float:
        """(objective − bound) / objective; 0 for a proven optimum."""
        if self.objective_ps <= self.bound_ps:
            return 0.0
        return (self.objective_ps - self.bound_ps) / self.objective_ps
