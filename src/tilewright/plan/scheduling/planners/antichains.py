"""What calls on one device take at least, as only those run at a time that wait for none of each
other: a linear program over sets of calls.

    googlenet beside inception_v3, 55 calls, 4 cores     at least 7.088 ms
    ways and work alone (`least_time`)                   at least 6.996 ms

At each moment a set of calls runs in some modes, none of which waits for another one and which have
no more cores than there are. Each call must be done by the times of all sets with it; the sum of
these times is to be least (A. Mingozzi et al., Management Science 44, 1998, there with one mode).
Calls may be interrupted and change modes, and their order is left open, so that no schedule is
below it. Sets are added while they lower the sum. Whatever they are, the prices of the calls, over
the most that a set earns in a second, are a bound (A. Farley, Operations Research 38, 1990).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from ortools.linear_solver import pywraplp

from tilewright.plan.scheduling.precedence import all_after, all_before, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem

_ROUNDED = 1e-7
"""The share by which sums of prices may be off."""
_CLOSE = 1e-4
"""What may be left between the bound and the program's answer."""
_ADDED = 12
"""Sets that are added at a time."""
_MOST_CORES = 8
"""With more there are more sets than can be looked at."""
_LOOK = 2048
"""Sets that are looked at between two looks at the clock."""

_Part = tuple[int, int]
"""A call and its mode."""


def apart_s(problem: SchedulingProblem, until: float) -> float:
    """A lower bound of the latency in seconds, the best that was found until then by the clock of
    `perf_counter`; 0 where nothing was, as with many cores. All calls have their modes on one
    device."""
    longest_s = max(mode.latency_s for call in problem.calls for mode in call.modes)
    cores = problem.device[problem.calls[0].modes[0].device].cores
    if not longest_s or cores > _MOST_CORES:
        return 0.0
    program, proven = _Program(problem, longest_s), 0.0
    while perf_counter() < until:
        total, prices = program.solved(until)
        best = program.best(prices, until)
        if best is None:
            break
        proven = max(proven, total / max(1.0, best.earned))
        if not best.sets or total - proven <= _CLOSE * total:
            break
        for each in best.sets:
            program.add(each)
    return proven * longest_s * (1.0 - _ROUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Best:
    """The most that a set earns in a second, and some sets that earn more than 1."""

    earned: float
    sets: Sequence[Sequence[_Part]]


class _Late(Exception):
    """The time is over."""


class _Program:
    """Sets as columns, calls that take some time in any mode as rows; times are shares of
    `unit_s`."""

    def __init__(self, problem: SchedulingProblem, unit_s: float) -> None:
        waits = waits_of(problem)
        sides = zip(all_before(waits), all_after(waits), strict=True)
        self._related = [before | after | 1 << n for n, (before, after) in enumerate(sides)]
        self._modes = [
            [(mode.cores, mode.latency_s / unit_s) for mode in call.modes] for call in problem.calls
        ]
        self._cores = problem.device[problem.calls[0].modes[0].device].cores
        self._solver = cast(Any, pywraplp).Solver.CreateSolver("GLOP")
        self._sum = self._solver.Objective()
        self._sum.SetMinimization()
        self._rows: dict[int, Any] = {
            number: self._solver.Constraint(1.0, self._solver.infinity())
            for number, modes in enumerate(self._modes)
            if min(seconds for _, seconds in modes) > 0.0
        }
        for number in self._rows:
            for place in range(len(self._modes[number])):
                self.add([(number, place)])

    def add(self, parts: Sequence[_Part]) -> None:
        """A set of calls in these modes."""
        column = self._solver.NumVar(0.0, self._solver.infinity(), "")
        self._sum.SetCoefficient(column, 1.0)
        for number, place in parts:
            self._rows[number].SetCoefficient(column, 1.0 / self._modes[number][place][1])

    def solved(self, until: float) -> tuple[float, dict[int, float]]:
        """The least sum of times with the sets that there are, by prices of calls."""
        left_s = max(1e-3, until - perf_counter())
        self._solver.SetTimeLimit(round(1e3 * left_s) + 1)
        self._solver.Solve()
        prices = {number: max(0.0, row.dual_value()) for number, row in self._rows.items()}
        return sum(prices.values()), prices

    def best(self, prices: Mapping[int, float], until: float) -> _Best | None:
        """The set that earns most by these prices, each call its price over the time of its mode;
        None where that was not found in time."""
        search = _Search(self._related, self._cores, until)
        for number, price in prices.items():
            if price > 0.0:
                modes = [
                    (price / seconds, cores, place)
                    for place, (cores, seconds) in enumerate(self._modes[number])
                ]
                search.offer(number, modes)
        try:
            return search.searched()
        except _Late:
            return None


_Earning = tuple[float, int, int]
"""What a mode earns in a second, its cores, and its place."""


class _Search:
    """Branch and bound over sets, calls that earn most for each core first."""

    def __init__(self, related: Sequence[int], cores: int, until: float) -> None:
        self._related, self._cores, self._until = related, cores, until
        self._offers: list[tuple[float, int, list[_Earning]]] = []
        self._chosen: list[_Part] = []
        self._earned, self._looked = 1.0 + _ROUNDED, 0
        self._sets: list[list[_Part]] = []

    def offer(self, number: int, modes: list[_Earning]) -> None:
        """A call that may be in sets."""
        for_a_core = max(earned / cores for earned, cores, _ in modes)
        self._offers.append((for_a_core, number, modes))

    def searched(self) -> _Best:
        """What earns most. Raises _Late when the time is over."""
        self._offers.sort(reverse=True)
        self._go_on(0, 0, self._cores, 0.0)
        return _Best(earned=self._earned, sets=self._sets[-_ADDED:])

    def _go_on(self, first: int, excluded: int, left: int, earned: float) -> None:
        """Add calls from this place on to those that are chosen."""
        if earned > self._earned:
            self._earned = earned
            self._sets.append(list(self._chosen))
        for at in range(first, len(self._offers) if left else 0):
            for_a_core, number, modes = self._offers[at]
            if earned + for_a_core * left <= self._earned:
                break
            if excluded >> number & 1:
                continue
            self._looked += 1
            if not self._looked % _LOOK and perf_counter() > self._until:
                raise _Late
            for more, cores, place in modes:
                if cores <= left:
                    self._chosen.append((number, place))
                    outside = excluded | self._related[number]
                    self._go_on(at + 1, outside, left - cores, earned + more)
                    self._chosen.pop()
