r"""Problems with a second cost and a budget for it: the least time whose noise is allowed.

    time  A                     the front: the lower left hull of (noise, time) of all assignments
           \                    A is too noisy, B is allowed; nothing within the budget is faster
            \ · C               than where the line from A to B meets it; C is not on the hull, and
              B                 may be faster than B

With a price for noise it is a problem with one cost, which any solver answers; its least sum less
price × budget bounds the time of all assignments within the budget (Everett 1963). At the price at
which A and B cost the same the bound is highest. What lies between the bound and B is looked at by
label setting (`labels.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

import numpy as np
import numpy.typing as npt

from tilewright.core.solutions import Solution
from tilewright.plan.assignment.labels import Labelling
from tilewright.plan.assignment.problem import FORBIDDEN, Assignment, Costs, Problem, Table
from tilewright.plan.assignment.solving import DEFAULT, solve

Floats = npt.NDArray[np.float64]
Noises = Mapping[str, Floats]
"""The noise of each value of some variables, by their names; at least 0."""

MOST_S = 1.5
"""So long at most the fastest and the front are looked for."""
_POINTS = 16
"""So many solutions at most are looked for to show the front."""
_DEAR = 1 << 50
_CLOSE = 1e-9
_LABELS = "labels"


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
    problem: Problem, noises: Noises, budget: float, solver: str = DEFAULT, most_s: float = MOST_S
) -> Front:
    """The fastest assignment whose noise is at most `budget`, proven to be that unless `most_s`
    seconds are too short for it.

    Raises Infeasible where there is no assignment without noise, and what the solver raises.
    """
    until_s = perf_counter() + most_s
    labels = Labelling.of(problem, noises)
    priced = _Priced(problem=problem, noises=noises, solver=solver, labels=labels)
    (fast, _), (quiet, _) = priced.cheapest(0.0), priced.cheapest(inf)
    if fast.noise <= budget:
        chosen, bound = fast, float(fast.cost_ps)
    else:
        chosen, bound = _closed(priced, *_bracket(priced, fast, quiet, budget), budget, until_s)
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
) -> tuple[Point, float, float]:
    """Of the neighbours on the front around the budget that within it, their price, and what all
    that is within the budget costs at least."""
    while True:
        price = max(0.0, _price(quiet, fast))
        found, least = priced.cheapest(price)
        if found.at(price) >= quiet.at(price) * (1.0 - _CLOSE) - 1.0:
            return quiet, price, least - price * budget
        fast, quiet = (found, quiet) if found.noise > budget else (fast, found)


def _closed(
    priced: _Priced, quiet: Point, price: float, least: float, budget: float, until_s: float
) -> tuple[Point, float]:
    """The fastest within the budget, and a bound of all that are, which is its cost where there was
    time enough; where the problem is too wide for labels what is known."""
    if priced.labels is None:
        return quiet, least
    places, bound = priced.labels.fastest(price, budget, quiet.cost_ps, until_s)
    return quiet if places is None else priced.point(places, _LABELS), bound


def _charges(noise: Floats, price: float) -> Costs:
    """What noise costs, in whole picoseconds; infinite noise is forbidden at any price."""
    forbidden = noise > 0 if price == inf else noise == inf
    paid = np.multiply(price, noise, out=np.zeros(len(noise)), where=~forbidden & (noise > 0))
    return np.where(forbidden, FORBIDDEN, np.rint(np.minimum(paid, _DEAR)).astype(np.int64))


@dataclass(slots=True, kw_only=True)
class _Priced:
    """A problem whose noise has a price, and labels for it where it is narrow enough; `seen` are
    the points that came of it."""

    problem: Problem
    noises: Noises
    solver: str
    labels: Labelling | None
    seen: list[Point] = field(default_factory=list[Point])

    def cheapest(self, price: float) -> tuple[Point, float]:
        """The assignment with the least cost and price × noise, without noise at an infinite price;
        and what all cost at least at that price."""
        if self.labels is not None and self.solver == DEFAULT:
            places, least = self.labels.cheapest(price)
            self.seen.append(self.point(places, _LABELS))
            return self.seen[-1], least
        tables = [
            Table(variables=(name,), costs=_charges(noise, price), role="rule", source="free")
            for name, noise in self.noises.items()
        ]
        priced = replace(self.problem, tables=(*self.problem.tables, *tables), default={})
        found = solve(priced, self.solver)
        self.seen.append(self.point(self.problem.places(found.assignment), found.solver))
        return self.seen[-1], float(found.bound_ps - len(tables))

    def point(self, places: Sequence[int], solver: str) -> Point:
        """What values at these places make."""
        numbers, cost = self.problem.numbers, self.problem.cost_at(places)
        assignment = self.problem.assignment(places)
        return Point(
            solution=Solution(solver=solver, assignment=assignment, objective_ps=cost),
            cost_ps=cost,
            noise=sum(float(noise[places[numbers[name]]]) for name, noise in self.noises.items()),
        )

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
