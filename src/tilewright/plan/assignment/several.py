"""The best few assignments, for those who measure them before they believe one.

After an elimination it is known what the other values of each variable cost at least, given the
variables that were eliminated after it. So assignments come in the order of their costs: each is
followed by those that leave it at one variable and go on at least cost from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from time import perf_counter

import numpy as np

from tilewright.core.errors import UsageError
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.factors import at, cheapest_order, possible_network, solved
from tilewright.plan.assignment.problem import FORBIDDEN, Problem, VariableKind
from tilewright.plan.assignment.solution import NothingFound, TooWide
from tilewright.plan.assignment.solvers.eliminating import QUICK
from tilewright.plan.assignment.solving import solve

_WIDE = ("auto", "dp", "pbqp", "greedy", "uniform", "history_best")
_ANY: tuple[VariableKind, ...] = ("layout", "choice")
_MOST_ALIKE = 500
"""So many assignments in a row may agree where they are to differ."""


def several(
    problem: Problem, count: int, *, differing: tuple[VariableKind, ...] = _ANY
) -> tuple[Solution, ...]:
    """The `count` best assignments, best first; fewer where there are no more.

    No two agree in all variables of the kinds `differing`; with one kind alone, each is the best
    with its values of that kind. Where the exact solver does not fit, the distinct assignments of
    the other solvers are given. Raises Infeasible where no assignment is allowed.
    """
    if count < 1:
        raise UsageError(f"the count of assignments must be at least 1, not {count}.")
    kept = [number for number, each in enumerate(problem.variables) if each.kind in differing]
    try:
        return _distinct(problem, kept, _ranked(problem, kept), count)
    except TooWide:
        found: list[Solution] = []
        for name in _WIDE:
            with suppress(TooWide, NothingFound):
                found.append(solve(problem, name))
        best_first = sorted(found, key=lambda solution: solution.objective_ps)
        return _distinct(problem, kept, best_first, count)


def _distinct(
    problem: Problem, kept: Sequence[int], solutions: Iterable[Solution], count: int
) -> tuple[Solution, ...]:
    """The first `count` that differ in variables `kept`."""
    found: dict[tuple[int, ...], Solution] = {}
    alike = 0
    for solution in solutions:
        places = problem.places(solution.assignment)
        known = found.setdefault(tuple(places[number] for number in kept), solution)
        alike = alike + 1 if known is not solution else 0
        if alike > _MOST_ALIKE:
            raise TooWide("too many assignments differ only where that does not matter.")
        if len(found) == count:
            break
    return tuple(found.values())


def _ranked(problem: Problem, kept: Sequence[int]) -> Iterator[Solution]:
    """Assignments by cost: the best one with each combination of values of the variables `kept`
    where these can be eliminated last, else all."""
    start = perf_counter()
    network = possible_network(problem)
    scopes, free = [factor.scope for factor in network.factors], kept
    order = cheapest_order(scopes, network.sizes, last=kept)
    if not QUICK.fits(order):
        free = range(len(problem.variables))
        order = cheapest_order(scopes, network.sizes)
    if not QUICK.fits(order):
        raise TooWide("the problem is too wide to rank its assignments.")
    elimination = solved(problem, network, order.variables)
    waiting: list[tuple[int, tuple[int, ...]]] = [(elimination.least, ())]
    while waiting:
        cost, begun = heappop(waiting)
        chosen: dict[int, int] = {}
        for variable, factors in reversed(elimination.buckets):
            if len(chosen) < len(begun):
                chosen[variable] = begun[len(chosen)]
                continue
            costs = at(factors, variable, chosen)
            best = int(np.argmin(costs))
            more = costs - costs[best]
            for place in np.flatnonzero(costs < FORBIDDEN).tolist():
                if place != best and variable in free:
                    heappush(waiting, (cost + int(more[place]), (*chosen.values(), place)))
            chosen[variable] = best
        yield Solution(
            solver="exact",
            assignment=problem.assignment(network.places(chosen)),
            objective_ps=cost,
            bound_ps=elimination.least,
            solve_s=perf_counter() - start,
        )
