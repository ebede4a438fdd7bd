"""The best few assignments, for those who measure them before they believe one.

Lawler (1972) and Murty (1968): the assignments are divided into parts, each with a known best one;
the second best of a part follows from the least costs by value (Nilsson 1998), and divides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from time import perf_counter

import numpy as np

from tilewright.core.errors import UsageError
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.elimination import eliminate, least_by_value
from tilewright.plan.assignment.factors import Network, network_of
from tilewright.plan.assignment.ordering import cheapest_order
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import FORBIDDEN, VariableKind
from tilewright.plan.assignment.reduction import propagate
from tilewright.plan.assignment.solution import NothingFound, TooWide, allowed, infeasible
from tilewright.plan.assignment.solvers.within import MOST_CELLS, MOST_WORK
from tilewright.plan.assignment.solving import solve

_WIDE = ("auto", "dp", "pbqp", "greedy", "uniform", "history_best")
_ANY: tuple[VariableKind, ...] = ("layout", "choice")


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
    try:
        return tuple(_ranked(problem, count, differing))
    except TooWide:
        return _of_all_solvers(problem, count, differing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of the assignments with its best one, given by places in the problem.

    The best one of its others costs `next_cost` and has the value `next_place` at `next_variable`.
    """

    network: Network
    places: tuple[int, ...]
    cost: int
    next_cost: int
    next_variable: int
    next_place: int


def _ranked(problem: Problem, count: int, differing: Sequence[VariableKind]) -> Iterator[Solution]:
    start = perf_counter()
    numbers = [n for n, each in enumerate(problem.variables) if each.kind in differing]
    whole = _part(network_of(problem), numbers)
    if whole is None:
        raise infeasible(problem)
    optimum = whole.cost
    yield _solution(problem, whole, optimum, perf_counter() - start)
    waiting: list[tuple[int, int, _Part]] = []
    made = 0

    def wait(part: _Part | None) -> None:
        nonlocal made
        if part is not None and allowed(part.next_cost):
            made += 1
            heappush(waiting, (part.next_cost, made, part))

    wait(whole)
    for _ in range(count - 1):
        if not waiting:
            return
        part = heappop(waiting)[2]
        with_value, without = part.network.copy(), part.network.copy()
        variable = part.next_variable
        place = with_value.values[variable].index(part.next_place)
        with_value.keep(variable, [place])
        without.keep(variable, [p for p in range(len(without.values[variable])) if p != place])
        found = _part(with_value, numbers)
        if found is None:
            raise infeasible(problem)
        yield _solution(problem, found, optimum, perf_counter() - start)
        wait(found)
        wait(_part(without, numbers, part.places))


def _part(
    network: Network, numbers: Sequence[int], best: tuple[int, ...] | None = None
) -> _Part | None:
    """The best assignment that a network allows and where the second best is; None for none.

    `best` is the best one where it is known already; others may cost the same.
    """
    if not propagate(network):
        return None
    simple = network.simplified()
    order = cheapest_order([factor.scope for factor in simple.factors], simple.sizes)
    if order.kept > MOST_CELLS or order.work > MOST_WORK:
        raise TooWide("the problem is too wide to rank its assignments.")
    elimination = eliminate(simple, order.variables)
    if not allowed(elimination.least):
        return None
    places = best or simple.places(elimination.chosen())
    least = least_by_value(elimination)
    next_cost, next_variable, next_place = FORBIDDEN, -1, -1
    for variable in numbers:
        same = np.full(len(simple.values[variable]), elimination.least, dtype=np.int64)
        costs = least.get(variable, same)
        for place, cost in zip(simple.values[variable], costs.tolist(), strict=True):
            if place != places[variable] and cost < next_cost:
                next_cost, next_variable, next_place = cost, variable, place
    return _Part(
        network=network,
        places=places,
        cost=elimination.least,
        next_cost=next_cost,
        next_variable=next_variable,
        next_place=next_place,
    )


def _solution(problem: Problem, part: _Part, bound: int, elapsed_s: float) -> Solution:
    return Solution(
        solver="exact",
        assignment=problem.assignment(part.places),
        objective_ps=part.cost,
        bound_ps=bound,
        solve_s=elapsed_s,
    )


def _of_all_solvers(
    problem: Problem, count: int, differing: Sequence[VariableKind]
) -> tuple[Solution, ...]:
    """The distinct assignments of the solvers that may fit, best first."""
    names = [variable.name for variable in problem.variables if variable.kind in differing]
    found: list[Solution] = []
    for name in _WIDE:
        try:
            found.append(solve(problem, name))
        except (TooWide, NothingFound):
            continue
    distinct: dict[tuple[str, ...], Solution] = {}
    for solution in sorted(found, key=lambda each: each.objective_ps):
        distinct.setdefault(tuple(solution.assignment[name] for name in names), solution)
    return tuple(distinct.values())[:count]
