r"""Problems with a second cost and a budget for it: the least time whose noise is allowed.

    time  A                     the front: the lower left hull of (noise, time) of all assignments
           \                    A is too noisy, B is allowed; nothing within the budget is faster
            \ · C               than where the line from A to B meets it; C is not on the hull, and
              B                 may be faster than B

With a price for noise it is a problem with one cost, which any solver answers; its least sum less
price × budget bounds the time of all assignments within the budget (Everett 1963). At the price at
which A and B cost the same the bound is highest. Branching closes what is left: values of a
variable that are as noisy as A's are taken apart from the others, and parts whose bound is not
below the best that is known go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from time import perf_counter

import numpy as np
import numpy.typing as npt

from tilewright.core.solutions import Solution
from tilewright.plan.assignment.problem import FORBIDDEN, Assignment, Problem, Table
from tilewright.plan.assignment.solution import Infeasible
from tilewright.plan.assignment.solving import DEFAULT, solve

Floats = npt.NDArray[np.float64]
Noises = Mapping[str, Floats]
"""The noise of each value of some variables, by their names; at least 0."""
Allowed = Mapping[str, Sequence[str]]
"""Values that variables may have."""

_POINTS = 16
"""So many solutions at most are looked for to show the front."""
_DEAR = 1 << 50
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An assignment with its cost in picoseconds and its noise."""

    solution: Solution
    cost_ps: int
    noise: float

    def at(self, price: float) -> float:
        """Its cost with so many picoseconds for each unit of noise."""
        return self.cost_ps + price * self.noise

    @property
    def assignment(self) -> Assignment:
        """A value for every variable."""
        return self.solution.assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The best assignment that was found within the budget, with a lower bound of the cost of all
    that are within it, and the assignments on the front that were seen, the fastest first."""

    chosen: Point
    bound_ps: int
    points: tuple[Point, ...]


def fastest_within(
    problem: Problem, noises: Noises, budget: float, solver: str = DEFAULT, most_s: float = 1.5
) -> Front:
    """The fastest assignment whose noise is at most `budget`, proven to be that unless `most_s`
    seconds are too short for it.

    Raises Infeasible where there is no assignment without noise, and what the solver raises.
    """
    until_s = perf_counter() + most_s
    priced = _Priced(problem=problem, noises=noises, solver=solver)
    fast, quiet = priced.cheapest(0.0), priced.silent()
    if fast.noise <= budget:
        chosen, bound = fast, float(fast.cost_ps)
    else:
        fast, quiet, price = _bracket(priced, fast, quiet, budget)
        chosen, bound = _branch(priced, fast, quiet, price, budget, until_s)
    priced.spread(until_s)
    return Front(
        chosen=chosen,
        bound_ps=min(chosen.cost_ps, max(0, round(bound))),
        points=hull([*priced.seen, chosen]),
    )


def hull(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points that are cheapest at some price, the fastest first."""
    found: list[Point] = []
    for point in sorted(points, key=lambda each: (each.noise, each.cost_ps)):
        if found and point.cost_ps >= found[-1].cost_ps:
            continue
        while len(found) > 1 and _price(found[-2], point) >= _price(found[-2], found[-1]):
            found.pop()
        found.append(point)
    return tuple(reversed(found))


def _price(quiet: Point, fast: Point) -> float:
    """At which two points cost the same."""
    return (quiet.cost_ps - fast.cost_ps) / (fast.noise - quiet.noise)


def _bracket(
    priced: _Priced, fast: Point, quiet: Point, budget: float
) -> tuple[Point, Point, float]:
    """The neighbours on the front beyond and within the budget, and their price."""
    while True:
        price = max(0.0, _price(quiet, fast))
        found = priced.cheapest(price)
        if found.at(price) >= quiet.at(price) * (1.0 - _CLOSE) - 1.0:
            return fast, quiet, price
        fast, quiet = (found, quiet) if found.noise > budget else (fast, found)


def _branch(
    priced: _Priced, fast: Point, best: Point, price: float, budget: float, until_s: float
) -> tuple[Point, float]:
    """The best within the budget and a bound, which is its cost where there was time enough."""
    order = count()
    waiting: list[tuple[float, int, Allowed, Point]] = []

    def wait(point: Point, allowed: Allowed) -> None:
        bound = point.at(price) - price * budget
        if bound < best.cost_ps - 1.0:
            heappush(waiting, (bound, next(order), allowed, point))

    wait(fast, {})
    while waiting and perf_counter() < until_s:
        bound, _, allowed, point = heappop(waiting)
        if bound >= best.cost_ps - 1.0:
            return best, float(best.cost_ps)
        for part in priced.parts(point, best, allowed):
            try:
                found = priced.cheapest(price, part)
            except Infeasible:
                continue
            if found.noise <= budget and found.cost_ps < best.cost_ps:
                best = found
            wait(found, part)
    return best, min([float(best.cost_ps), *(each[0] for each in waiting)])


@dataclass(slots=True, kw_only=True)
class _Priced:
    """A problem whose noise has a price; `seen` are the points that came of it."""

    problem: Problem
    noises: Noises
    solver: str
    seen: list[Point] = field(default_factory=list[Point])

    def cheapest(self, price: float, allowed: Allowed | None = None) -> Point:
        """The assignment with the least cost and price × noise, of the values that are allowed."""
        costs = {name: np.minimum(price * noise, _DEAR) for name, noise in self.noises.items()}
        return self._found(costs, allowed)

    def silent(self) -> Point:
        """The fastest assignment without any noise."""
        return self._found(
            {n: np.where(noise > 0, FORBIDDEN, 0) for n, noise in self.noises.items()}
        )

    def _found(self, costs: Noises, allowed: Allowed | None = None) -> Point:
        tables = [
            Table(
                variables=(name,), costs=np.rint(cost).astype(np.int64), role="rule", source="free"
            )
            for name, cost in costs.items()
        ]
        priced = replace(self.problem, tables=(*self.problem.tables, *tables), default={})
        found = solve(priced.restricted(allowed) if allowed else priced, self.solver)
        places = self.problem.places(found.assignment)
        point = Point(
            solution=found,
            cost_ps=self.problem.cost_at(places),
            noise=sum(
                float(noise[places[self.problem.numbers[name]]])
                for name, noise in self.noises.items()
            ),
        )
        if not allowed:
            self.seen.append(point)
        return point

    def parts(self, point: Point, best: Point, allowed: Allowed) -> Iterator[Allowed]:
        """What is allowed in two parts: a variable as noisy as at a point, or else."""
        found: list[tuple[bool, float, str, list[str], list[str]]] = []
        for variable in self.problem.variables:
            noise = self.noises.get(variable.name)
            if noise is None:
                continue
            of = dict(zip(variable.values, noise, strict=True))
            here = of[point.assignment[variable.name]]
            values = allowed.get(variable.name, variable.values)
            same = [value for value in values if of[value] == here]
            others = [value for value in values if of[value] != here]
            if others:
                differs = of[best.assignment[variable.name]] != here
                found.append((differs, float(here), variable.name, same, others))
        if found:
            _, _, name, same, others = max(found, key=lambda each: each[:2])
            yield {**allowed, name: same}
            yield {**allowed, name: others}

    def spread(self, until_s: float) -> None:
        """See more of the front, where its points are far from each other."""
        closed: set[tuple[int, int]] = set()
        while len(self.seen) < _POINTS and perf_counter() < until_s:
            points = hull(self.seen)
            pairs = zip(points, points[1:], strict=False)
            left = [pair for pair in pairs if (id(pair[0]), id(pair[1])) not in closed]
            if not left:
                return
            fast, quiet = max(left, key=lambda pair: pair[1].cost_ps - pair[0].cost_ps)
            closed.add((id(fast), id(quiet)))
            self.cheapest(_price(quiet, fast))
