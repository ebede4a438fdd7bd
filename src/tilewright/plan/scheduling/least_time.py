"""The least time, or energy, of calls that may run in pieces of several modes: a linear program.

    a → b → c, and d beside them; each 8 µs on one core or 5 µs on both, 2 cores
    the way in fastest modes 15 µs, the least work of all 32 core-µs ÷ 2 = 16 µs; at least 18 µs,
    two thirds of a, b and c being on both cores

A call on many cores shortens the ways through it and does more work; one on few does the opposite.
The longest way with all fastest modes and the least work of all modes are bounds that no schedule
meets together. Here each call has parts of its modes, which add up to one: what follows begins
after so much of each mode's time, and each device does so much of each mode's work (allotment of
malleable tasks: R. Lepère, D. Trystram and G. Woeginger, International Journal of Foundations of
Computer Science 13, 2002).

With the end bounded by a deadline the same rows say what energy takes at least:

    two calls, one after the other, 100 µs for 10 J or 104 µs for 6 J; 204 µs in all: at least 16 J
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, cast

from tilewright.plan.scheduling.capacities import capacities, demand
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem

_SOLVED_TO = 1e-6
"""The share by which the linear program's answer may be off."""

_Terms = list[tuple[int, float]]
"""Columns with their factors."""


def least_time_s(
    problem: SchedulingProblem, modes: Sequence[Sequence[Mode]], *, waits: bool
) -> float:
    """A lower bound of the latency where calls have these modes; without `waits` of the time in
    which all devices together do the work of all calls. 0 where the program is not solved."""
    longest_s = max(mode.latency_s for alike in modes for mode in alike)
    if not longest_s:
        return 0.0
    program = _Program(problem, modes, longest_s)
    rows = [*program.work(), *(program.ways() if waits else ())]
    return program.solved(rows) * longest_s


def least_energy_j(
    problem: SchedulingProblem, modes: Sequence[Sequence[Mode]], within_s: float
) -> float:
    """A lower bound in joules of what calls with these modes draw, and devices when idle, in a
    schedule that ends within so many seconds, which may be infinite. 0 where the program is not
    solved: where nothing draws anything, or where no schedule ends so soon."""
    longest_s = max(mode.latency_s for alike in modes for mode in alike)
    most_j = max(mode.energy_j or 0.0 for alike in modes for mode in alike)
    if not longest_s or not most_j:
        return 0.0
    program = _Program(problem, modes, longest_s)
    rows = [*program.work(), *program.ways()]
    within = within_s / longest_s * (1 + _SOLVED_TO)
    return program.solved(rows, program.energy(most_j), within) * most_j


class _Program:
    """Columns: the parts of all modes, call by call; the begins of all calls; the end. Times are
    shares of `unit_s`. In each row the terms add up to 0 at most."""

    def __init__(
        self, problem: SchedulingProblem, modes: Sequence[Sequence[Mode]], unit_s: float
    ) -> None:
        self._problem, self._unit_s = problem, unit_s
        self._parts: list[list[tuple[int, Mode]]] = []
        self._calls = [number for number, alike in enumerate(modes) for _ in alike]
        columns = iter(range(len(self._calls)))
        for alike in modes:
            self._parts.append([(next(columns), mode) for mode in alike])
        self._begins = range(len(self._calls), len(self._calls) + len(modes))
        self._end = self._begins.stop

    def work(self) -> Iterator[_Terms]:
        """What a device does of all calls takes no more of anything than it has until the end."""
        parts = [part for own in self._parts for part in own]
        for device in self._problem.devices:
            for name, most in capacities(device).items():
                if most > 0:
                    yield [
                        *(
                            (column, demand(name, device, m) * m.latency_s / self._unit_s / most)
                            for column, m in parts
                            if m.device == device.name
                        ),
                        (self._end, -1.0),
                    ]

    def ways(self) -> Iterator[_Terms]:
        """A call begins after the end of each that it waits for, or after the transfer of its
        result where it is not on that call's device; the end is after those of all."""
        for number, begin in enumerate(self._begins):
            if not self._problem.after[number]:
                yield [(begin, 1.0), *self._seconds(number), (self._end, -1.0)]
            for before, _ in self._problem.before[number]:
                shared = [(self._begins[before], 1.0), (begin, -1.0), *self._seconds(before)]
                yield shared
                for device in {mode.device for _, mode in self._parts[before]}:
                    away_s = self._away_s(before, number, device)
                    if away_s:
                        yield [
                            *shared,
                            *((at, away_s) for at, m in self._parts[before] if m.device == device),
                            *((at, -away_s) for at, m in self._parts[number] if m.device == device),
                        ]

    def energy(self, unit_j: float) -> _Terms:
        """What all calls draw and all devices when idle, as shares of so many joules."""
        idle_w = sum(device.idle_w or 0.0 for device in self._problem.devices)
        parts = [part for own in self._parts for part in own]
        drawn = [(column, (mode.energy_j or 0.0) / unit_j) for column, mode in parts]
        return [*drawn, (self._end, idle_w * self._unit_s / unit_j)]

    def _seconds(self, number: int) -> _Terms:
        return [(column, mode.latency_s / self._unit_s) for column, mode in self._parts[number]]

    def _away_s(self, before: int, number: int, device: str) -> float:
        """What passes at least until a result of a device is read on another one; 0 where no link
        leads to any."""
        others = {mode.device for _, mode in self._parts[number]} - {device}
        times = [self._problem.transfer_s(before, device, other) for other in others]
        known = [seconds for seconds in times if seconds is not None]
        return (min(known) + self._problem.handoff_s) / self._unit_s if known else 0.0

    def solved(
        self, rows: Sequence[_Terms], costs: _Terms | None = None, within: float = inf
    ) -> float:
        """The least sum of these costs, the least end without any, where the end is in time."""
        import numpy as np
        from scipy import optimize, sparse

        matrix, size = cast(Any, sparse).csr_array, self._end + 1
        filled = [(row, column, factor) for row, each in enumerate(rows) for column, factor in each]
        places, columns, factors = zip(*filled, strict=True)
        above = matrix((factors, (places, columns)), shape=(len(rows), size))
        least = np.zeros(size)
        for column, cost in costs or [(self._end, 1.0)]:
            least[column] = cost
        ones, count = np.ones(len(self._calls)), len(self._parts)
        whole = matrix((ones, (self._calls, range(len(self._calls)))), shape=(count, size))
        answer = cast(Any, optimize).linprog(
            least,
            A_ub=above,
            b_ub=np.zeros(len(rows)),
            A_eq=whole,
            b_eq=np.ones(count),
            bounds=[*[(0.0, inf)] * self._end, (0.0, within)],
            method="highs",
        )
        return max(0.0, float(answer.fun)) * (1 - _SOLVED_TO) if answer.success else 0.0
