"""Reductions of partitioned boolean quadratic programs (Hames and Scholz 2006).

R0, RI and RII eliminate variables with no, one or two neighbours; they lose nothing. Where only
variables with more are left, RN fixes the one with most neighbours at the value that looks best by
itself and its neighbours. Going back gives the values of the eliminated variables. A table over
more than two variables makes all of them neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.plan.assignment.factors import (
    Factor,
    Network,
    at,
    capped,
    eliminated,
    network_of,
    scope_of,
)
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.records import FORBIDDEN, Costs
from tilewright.plan.assignment.reduction import propagate
from tilewright.plan.assignment.solution import Found, allowed, infeasible, nothing_found

_MOST_NEIGHBOURS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pbqp:
    """Exact where R0, RI and RII suffice; a heuristic that may find nothing elsewhere."""

    name: str = "pbqp"

    def find(self, problem: Problem) -> Found:
        """An assignment, proven the best when RN was not needed."""
        network = network_of(problem)
        if not propagate(network):
            raise infeasible(problem)
        graph = _Graph(network)
        reduced = graph.reduce()
        if reduced:
            places = network.places(graph.chosen())
            objective = problem.cost(problem.assignment(places))
            if allowed(objective):
                note = f"RN fixed {graph.fixed} variables" if graph.fixed else "RN was not needed"
                return Found(places=places, bound_ps=None if graph.fixed else objective, note=note)
        raise nothing_found(problem, self.name) if graph.fixed else infeasible(problem)


class _Graph:
    """What is left to reduce.

    `removed` holds what was eliminated, in order: variables with the factors that were over them.
    """

    def __init__(self, network: Network) -> None:
        self.sizes = network.sizes
        self.fixed = 0
        self.removed: list[tuple[int, tuple[Factor, ...]]] = []
        self._values: dict[int, int] = {}
        self._factors: dict[int, Factor] = {}
        self._touching: list[set[int]] = [set() for _ in self.sizes]
        self._left = set(range(len(self.sizes)))
        self._made = 0
        for factor in network.factors:
            self._add(factor)

    def reduce(self) -> bool:
        """Remove all variables; False when no allowed value is in sight for one of them."""
        waiting = set(self._left)
        while self._left:
            while waiting:
                variable = waiting.pop()
                around = self._neighbours(variable)
                if len(around) <= _MOST_NEIGHBOURS:
                    self._eliminate(variable)
                    waiting |= around
            if self._left:
                variable = max(self._left, key=lambda v: (len(self._neighbours(v)), -v))
                waiting |= self._neighbours(variable)
                if not self._fix(variable):
                    return False
        return True

    def chosen(self) -> dict[int, int]:
        """The value of every variable, as a place among the network's."""
        chosen = dict(self._values)
        for variable, factors in reversed(self.removed):
            chosen[variable] = int(np.argmin(at(factors, variable, chosen)))
        return chosen

    def _eliminate(self, variable: int) -> None:
        """R0, RI, RII: replace the factors over a variable by one over its neighbours."""
        factors = self._take(variable)
        if factors:
            message = eliminated(factors, variable)
            if message.scope:
                self._add(message)
            self.removed.append((variable, factors))
        else:
            self._values[variable] = 0

    def _fix(self, variable: int) -> bool:
        """RN: give a variable the first value, in order of local cost, that leaves all others some
        value."""
        costs = self._local_costs(variable)
        for place in map(int, np.argsort(costs, kind="stable")):
            if not allowed(int(costs[place])):
                return False
            left = self._left_with(variable, place)
            if left is None:
                continue
            self._values[variable] = place
            self.fixed += 1
            for factor in self._take(variable):
                axis = factor.scope.index(variable)
                rest = tuple(other for other in factor.scope if other != variable)
                if rest:
                    self._add(Factor(rest, np.take(factor.costs, [place], axis=axis).squeeze(axis)))
            for other in sorted(self._left):
                if len(left[other]) < self.sizes[other]:
                    self._add(_only(other, left[other], self.sizes[other]))
            return True
        return False

    def _local_costs(self, variable: int) -> Costs:
        """What each value costs at least, by itself and with its neighbours' own costs."""
        total = np.zeros(self.sizes[variable], dtype=np.int64)
        for number in self._touching[variable]:
            factor = self._factors[number]
            costs = factor.costs
            for axis, other in enumerate(factor.scope):
                if other != variable:
                    shape = [-1 if a == axis else 1 for a in range(costs.ndim)]
                    costs = capped(costs + self._own_costs(other).reshape(shape))
            rest = tuple(a for a, other in enumerate(factor.scope) if other != variable)
            total = capped(total + costs.min(axis=rest))
        return total

    def _own_costs(self, variable: int) -> Costs:
        total = np.zeros(self.sizes[variable], dtype=np.int64)
        for number in self._touching[variable]:
            if len(self._factors[number].scope) == 1:
                total = capped(total + self._factors[number].costs)
        return total

    def _left_with(self, variable: int, place: int) -> list[list[int]] | None:
        """The values left to all variables once one is fixed, None when some has none."""
        around = self._neighbours(variable)
        numbers = {number: index for index, number in enumerate(self._factors)}
        trial = Network(
            [list(range(size)) for size in self.sizes],
            list(self._factors.values()),
            [[numbers[number] for number in touching] for touching in self._touching],
        )
        trial.keep(variable, [place])
        return trial.values if propagate(trial, [variable, *around]) else None

    def _neighbours(self, variable: int) -> set[int]:
        factors = [self._factors[number] for number in self._touching[variable]]
        return set(scope_of(factors)) - {variable}

    def _add(self, factor: Factor) -> None:
        self._factors[self._made] = factor
        for variable in factor.scope:
            self._touching[variable].add(self._made)
        self._made += 1

    def _take(self, variable: int) -> tuple[Factor, ...]:
        """Take a variable and the factors over it out."""
        self._left.discard(variable)
        taken: list[Factor] = []
        for number in sorted(self._touching[variable]):
            factor = self._factors.pop(number)
            taken.append(factor)
            for other in factor.scope:
                if other != variable:
                    self._touching[other].discard(number)
        self._touching[variable] = set()
        return tuple(taken)


def _only(variable: int, places: list[int], size: int) -> Factor:
    """A factor that forbids all values but some."""
    costs = np.full(size, FORBIDDEN, dtype=np.int64)
    costs[places] = 0
    return Factor((variable,), costs)


SOLVER = Pbqp()
