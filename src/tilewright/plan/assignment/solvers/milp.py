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
from tilewright.plan.assignment.problem import FORBIDDEN, Problem
from tilewright.plan.assignment.solution import Found, TooWide, allowed, infeasible, nothing_found
from tilewright.plan.assignment.solvers.eliminating import reduced

Numbers = npt.NDArray[np.float64]

_LARGEST_COST = 1e6
_INFEASIBLE, _UNBOUNDED = 2, 3
_RELATIVE_TOLERANCE, _TOLERANCE = 1e-9, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Milp:
    """Proves a bound, and the optimum if `time_limit_s` lets it; TooWide above `most_columns`."""

    name: str = "milp"
    time_limit_s: float = 60.0
    most_columns: int = 2_000_000

    def find(self, problem: Problem) -> Found:
        """The best assignment HiGHS finds in its time."""
        found = self.attempt(problem)
        if not found.places:
            raise nothing_found(problem, self.name)
        return found

    def attempt(self, problem: Problem) -> Found:
        """What HiGHS finds and proves in its time, be it a bound alone, without places."""
        network, _ = reduced(problem)
        if not network.factors:
            if not allowed(network.constant):
                raise infeasible(problem)
            return Found(places=network.places({}), bound_ps=network.constant)
        program = _program(network)
        if program is None or len(program.costs) > self.most_columns:
            raise TooWide(f"{problem.title} has too many combinations for the milp solver.")
        unit_ps = max(1.0, float(program.costs.max()) / _LARGEST_COST)
        result = _optimized(program, unit_ps, self.time_limit_s)
        if result.status in (_INFEASIBLE, _UNBOUNDED):
            raise infeasible(problem)
        places, bound = (), network.constant + program.offset_ps
        if result.mip_dual_bound is not None and isfinite(result.mip_dual_bound):
            # no assignment costs a fraction of a picosecond
            value = result.mip_dual_bound * unit_ps
            bound += max(0, ceil(value - max(_TOLERANCE, abs(value) * _RELATIVE_TOLERANCE)))
        if result.x is not None:
            chosen = {
                variable: int(np.argmax(result.x[start : start + len(network.values[variable])]))
                for variable, start in program.starts.items()
            }
            places = network.places(chosen)
            if not allowed(problem.cost_at(places)):
                places = ()
        note = f"stopped after {self.time_limit_s:g} s" if result.status else ""
        return Found(places=places, bound_ps=bound, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """`costs` are picoseconds per column; `offset_ps` was taken off all assignments.

    `starts` gives the first column of each variable. `cells` are rows, columns and entries of the
    equations; the first rows, one per variable, equal 1, the others 0. The first `whole` columns,
    one per value of a variable, are whole numbers.
    """

    costs: Numbers
    offset_ps: int
    starts: Mapping[int, int]
    cells: Numbers
    whole: int


def _optimized(program: _Program, unit_ps: float, time_limit_s: float) -> Any:
    """HiGHS's result, in units of so many picoseconds."""
    from scipy import optimize, sparse

    (rows, columns), entries = program.cells[:2].astype(np.int64), program.cells[2]
    matrix = cast(Any, sparse).csr_array((entries, (rows, columns)))
    right = (np.arange(int(rows.max()) + 1) < len(program.starts)).astype(np.float64)
    return cast(Any, optimize).milp(
        program.costs / unit_ps,
        integrality=(np.arange(len(program.costs)) < program.whole).astype(np.int64),
        bounds=cast(Any, optimize).Bounds(0, 1),
        constraints=cast(Any, optimize).LinearConstraint(matrix, right, right),
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )


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
    return _Program(
        costs=np.concatenate(costs),
        offset_ps=offset,
        starts=starts,
        cells=np.concatenate(cells, axis=1),
        whole=len(costs[0]),
    )
