"""An integer program over the local polytope, solved by HiGHS.

A column per value of a variable (0 or 1) and per allowed combination of a table (0 to 1): one value
each, and the combinations of a table with a value add up to that value (Koster, van Hoesel and
Kolen 1998). HiGHS computes in floating point: the bound holds up to its tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tilewright.plan.assignment.factors import Network
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import FORBIDDEN
from tilewright.plan.assignment.solution import Found, TooWide, allowed, infeasible, nothing_found
from tilewright.plan.assignment.solvers.exact import reduced

Numbers = npt.NDArray[np.float64]

_LARGEST_COST = 1e6
_INFEASIBLE, _UNBOUNDED = 2, 3
_RELATIVE_TOLERANCE, _TOLERANCE = 1e-9, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`places` is None when no assignment was found; `bound_ps` is a lower bound anyway."""

    places: tuple[int, ...] | None
    bound_ps: int
    finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Milp:
    """Proves a bound, and the optimum if `time_limit_s` lets it; TooWide above `most_columns`."""

    name: str = "milp"
    time_limit_s: float = 60.0
    most_columns: int = 2_000_000

    def find(self, problem: Problem) -> Found:
        """The best assignment HiGHS finds in its time."""
        attempt = self.attempt(problem)
        if attempt.places is None:
            raise nothing_found(problem, self.name)
        note = "" if attempt.finished else f"stopped after {self.time_limit_s:g} s"
        return Found(places=attempt.places, bound_ps=attempt.bound_ps, note=note)

    def attempt(self, problem: Problem) -> Attempt:
        """What HiGHS finds and proves in its time, be it a bound alone."""
        network, _ = reduced(problem)
        if not network.factors:
            if not allowed(network.constant):
                raise infeasible(problem)
            return Attempt(places=network.places({}), bound_ps=network.constant)
        program = _program(network)
        if program is None or len(program.costs) > self.most_columns:
            raise TooWide(f"{problem.title} has too many combinations for the milp solver.")
        result = program.solved(self.time_limit_s)
        if result.status in (_INFEASIBLE, _UNBOUNDED):
            raise infeasible(problem)
        places = None
        if result.x is not None:
            places = network.places(program.chosen(network, result.x))
            if not allowed(problem.cost_at(places)):
                places = None
        bound = network.constant + program.least_ps(result.mip_dual_bound)
        return Attempt(places=places, bound_ps=bound, finished=result.status == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """`costs` per column in units of `unit_ps`; `offset_ps` was taken off all assignments.

    `starts` gives the first column of each variable. `cells` are rows, columns and entries of the
    equations; the first rows, one per variable, equal 1, the others 0. The first `whole` columns,
    one per value of a variable, are whole numbers.
    """

    costs: Numbers
    unit_ps: float
    offset_ps: int
    starts: Mapping[int, int]
    cells: Numbers
    whole: int

    def solved(self, time_limit_s: float) -> Any:
        """HiGHS's result."""
        from scipy import optimize, sparse

        optimize, rows = cast(Any, optimize), int(self.cells[0].max()) + 1
        places = self.cells[:2].astype(np.int64)
        shape = (rows, len(self.costs))
        matrix = cast(Any, sparse).csr_array((self.cells[2], tuple(places)), shape=shape)
        right = (np.arange(rows) < len(self.starts)).astype(np.float64)
        return optimize.milp(
            self.costs,
            integrality=(np.arange(len(self.costs)) < self.whole).astype(np.int64),
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, right, right),
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
        )

    def chosen(self, network: Network, x: Numbers) -> dict[int, int]:
        """The values that columns stand for."""
        return {
            variable: int(np.argmax(x[start : start + len(network.values[variable])]))
            for variable, start in self.starts.items()
        }

    def least_ps(self, bound: float | None) -> int:
        """A dual bound as whole picoseconds: no assignment costs a fraction of one."""
        if bound is None or not isfinite(bound):
            return self.offset_ps
        value = bound * self.unit_ps
        tolerance = max(_TOLERANCE, abs(value) * _RELATIVE_TOLERANCE)
        return self.offset_ps + max(0, ceil(value - tolerance))


def _program(network: Network) -> _Program | None:
    """The program of a network; None when a table allows nothing."""
    starts: dict[int, int] = {}
    cells: list[npt.NDArray[Any]] = []
    width = offset = 0

    def add(rows: Any, columns: Any, entry: float) -> None:
        cells.append(np.stack(np.broadcast_arrays(rows, columns, entry)))

    for variable, touching in enumerate(network.touching):
        if touching:
            size = len(network.values[variable])
            add(len(starts), np.arange(width, width + size), 1.0)
            starts[variable] = width
            width += size
    row, costs = len(starts), [np.zeros(width)]
    for factor in network.factors:
        combined = np.argwhere(factor.costs < FORBIDDEN)
        if not len(combined):
            return None
        prices = factor.costs[tuple(combined.T)]
        offset += int(prices.min())
        costs.append((prices - prices.min()).astype(np.float64))
        for variable, places in zip(factor.scope, combined.T, strict=True):
            values = np.arange(len(network.values[variable]))
            add(row + places, np.arange(width, width + len(places)), 1.0)
            add(row + values, starts[variable] + values, -1.0)
            row += len(values)
        width += len(combined)
    prices = np.concatenate(costs)
    unit = max(1.0, float(prices.max()) / _LARGEST_COST)
    return _Program(
        costs=prices / unit,
        unit_ps=unit,
        offset_ps=offset,
        starts=starts,
        cells=np.concatenate(cells, axis=1),
        whole=len(costs[0]),
    )
