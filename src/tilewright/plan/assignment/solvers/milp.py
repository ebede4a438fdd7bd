"""An integer program over the local polytope, solved by HiGHS.

A column per value of a variable (0 or 1) and per allowed combination of a table (0 to 1): one value
each, and the combinations of a table with a value add up to that value (Koster, van Hoesel and
Kolen 1998). HiGHS computes in floating point: the bound holds up to its tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

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
        attempt = self.attempt(problem)
        if attempt.places is None:
            raise nothing_found(problem, self.name)
        return Found(
            places=attempt.places,
            bound_ps=attempt.bound_ps,
            note="" if attempt.finished else f"stopped after {self.time_limit_s:g} s",
        )

    def attempt(self, problem: Problem) -> Attempt:
        """What HiGHS finds and proves in its time, be it a bound alone."""
        network, _ = reduced(problem)
        if not network.factors:
            if not allowed(network.constant):
                raise infeasible(problem)
            return Attempt(places=network.places({}), bound_ps=network.constant, finished=True)
        program = _program(network)
        if program is None or len(program.costs) > self.most_columns:
            raise TooWide(f"{problem.title} has too many combinations for the milp solver.")
        result = _optimize(program, self.time_limit_s)
        if result.status in (_INFEASIBLE, _UNBOUNDED):
            raise infeasible(problem)
        places = None
        if result.x is not None:
            places = network.places(_chosen(network, program, result.x))
            if not allowed(problem.cost(problem.assignment(places))):
                places = None
        bound = network.constant + program.least_ps(result.mip_dual_bound)
        return Attempt(places=places, bound_ps=bound, finished=result.status == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`places` is None when no assignment was found; `bound_ps` is a lower bound anyway."""

    places: tuple[int, ...] | None
    bound_ps: int
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """`costs` per column in units of `unit_ps`; `offset_ps` was taken off all assignments.

    `starts` gives the first column of each variable. Row `rows[i]`, column `columns[i]` of the
    equations has `entries[i]`; the first rows, one per variable, equal 1, the others 0.
    """

    costs: Floats
    unit_ps: float
    offset_ps: int
    starts: Mapping[int, int]
    integral: Integers
    rows: Integers
    columns: Integers
    entries: Floats
    right: Floats

    def least_ps(self, bound: float | None) -> int:
        """A dual bound as whole picoseconds: no assignment costs a fraction of one."""
        if bound is None or not isfinite(bound):
            return self.offset_ps
        value = bound * self.unit_ps
        tolerance = max(_TOLERANCE, abs(value) * _RELATIVE_TOLERANCE)
        return self.offset_ps + max(0, ceil(value - tolerance))


class _Rows:
    """Collects equations."""

    def __init__(self) -> None:
        self.rows: list[Integers] = []
        self.columns: list[Integers] = []
        self.entries: list[Floats] = []
        self.right: list[float] = []

    def add(self, columns: Integers, entries: Floats, right: float) -> None:
        """The entries in these columns add up to `right`."""
        self.rows.append(np.full(len(columns), len(self.right), dtype=np.int64))
        self.columns.append(columns)
        self.entries.append(entries)
        self.right.append(right)


def _program(network: Network) -> _Program | None:
    """The program of a network; None when a table allows nothing."""
    rows, costs, starts, offset = _Rows(), list[Floats](), dict[int, int](), 0
    width = 0
    for variable, touching in enumerate(network.touching):
        if not touching:
            continue
        size = len(network.values[variable])
        starts[variable] = width
        costs.append(np.zeros(size))
        rows.add(np.arange(width, width + size), np.ones(size), 1.0)
        width += size
    values = width
    for factor in network.factors:
        cells = np.argwhere(factor.costs < FORBIDDEN)
        if not len(cells):
            return None
        prices = factor.costs[tuple(cells.T)]
        least = int(prices.min())
        offset += least
        costs.append((prices - least).astype(np.float64))
        for axis, variable in enumerate(factor.scope):
            for place in range(len(network.values[variable])):
                combined = width + np.flatnonzero(cells[:, axis] == place)
                columns = np.append(combined, starts[variable] + place)
                entries = np.append(np.ones(len(combined)), -1.0)
                rows.add(columns, entries, 0.0)
        width += len(cells)
    prices = np.concatenate(costs)
    unit = max(1.0, float(prices.max()) / _LARGEST_COST)
    return _Program(
        costs=prices / unit,
        unit_ps=unit,
        offset_ps=offset,
        starts=starts,
        integral=(np.arange(width) < values).astype(np.int64),
        rows=np.concatenate(rows.rows),
        columns=np.concatenate(rows.columns),
        entries=np.concatenate(rows.entries),
        right=np.array(rows.right),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    status: int
    x: Floats | None
    mip_dual_bound: float | None


def _optimize(program: _Program, time_limit_s: float) -> _Outcome:
    from scipy import optimize, sparse

    shape = (len(program.right), len(program.costs))
    matrix = cast(Any, sparse).csr_array(
        (program.entries, (program.rows, program.columns)), shape=shape
    )
    result: Any = cast(Any, optimize).milp(
        program.costs,
        integrality=program.integral,
        bounds=cast(Any, optimize).Bounds(0, 1),
        constraints=cast(Any, optimize).LinearConstraint(matrix, program.right, program.right),
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )
    return _Outcome(status=result.status, x=result.x, mip_dual_bound=result.mip_dual_bound)


def _chosen(network: Network, program: _Program, x: Sequence[float] | Floats) -> dict[int, int]:
    found: dict[int, int] = {}
    for variable, start in program.starts.items():
        found[variable] = int(np.argmax(x[start : start + len(network.values[variable])]))
    return found


SOLVER = Milp()
