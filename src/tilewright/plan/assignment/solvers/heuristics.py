"""Solvers that prove nothing and may find nothing where much is forbidden: rivals to compare with.

`Greedy` decides one variable after the other. `HistoryBest` takes the best kernel everywhere,
whatever the transforms between them cost: what operator-level tuning gives by itself. `Uniform`
keeps one block size everywhere, as inference engines with a fixed blocked layout have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.plan.assignment.factors import (
    Network,
    capped,
    decide,
    least_along,
    least_costs,
    possible_network,
    propagate,
)
from tilewright.plan.assignment.problem import Costs, Problem
from tilewright.plan.assignment.solution import (
    Found,
    Infeasible,
    NothingFound,
    TooWide,
    nothing_found,
)
from tilewright.plan.assignment.solvers.eliminating import QUICK, Pbqp

_LAYOUT = re.compile(r"plain|blocked([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """One variable after the other, in the problem's order, each at its least cost so far.

    A table with undecided variables counts with the least it can still cost. Values that would
    leave a variable without any are passed over.
    """

    name: str = "greedy"

    def find(self, problem: Problem) -> Found:
        """An assignment made in one pass."""
        network = possible_network(problem)
        for variable in range(len(network.values)):
            decided = decide(network, variable, least_costs(network, variable))
            if decided is None:
                raise nothing_found(problem, self.name)
            network = decided
        return Found(places=network.places({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBest:
    """Each choice with kernel times takes the value whose kernels are fastest, the next best one
    where earlier choices forbid it. Everything else is then chosen at least cost."""

    name: str = "history_best"

    def find(self, problem: Problem) -> Found:
        """The best kernels, then the best of the rest."""
        network = possible_network(problem)
        fixed: dict[str, tuple[str, ...]] = {}
        for number, variable in enumerate(problem.variables):
            costs = _kernel_costs(problem, variable.name) if variable.kind == "choice" else None
            if costs is None:
                continue
            decided = decide(network, number, costs[network.values[number]])
            if decided is None:
                raise nothing_found(problem, self.name)
            network = decided
            fixed[variable.name] = (variable.values[network.values[number][0]],)
        try:
            found = _best_within(problem.restricted(fixed))
        except Infeasible as error:
            raise nothing_found(problem, self.name) from error
        return Found(places=problem.places(found), note=f"{len(fixed)} choices fixed")


def _kernel_costs(problem: Problem, name: str) -> Costs | None:
    """The least kernel time by value of a choice, None where no kernel depends on it."""
    total: Costs | None = None
    for table in problem.tables:
        if table.role == "kernel" and name in table.variables:
            least = least_along(table.costs, table.variables.index(name))
            total = least if total is None else capped(total + least)
    return total


def _best_within(problem: Problem) -> dict[str, str]:
    """The best assignment; a good one where the exact solver would take long.

    Raises Infeasible where there is none, NothingFound where none was found.
    """
    try:
        found = QUICK.find(problem)
    except TooWide:
        found = Pbqp().find(problem)
    return problem.assignment(found.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """For each block size, every variable that has values of it is left only those, choices first,
    unless that would leave another variable none. What remains is solved exactly; the best block
    size wins. `plain` counts as a block size of its own."""

    name: str = "uniform"

    def find(self, problem: Problem) -> Found:
        """The best assignment with one block size."""
        network = possible_network(problem)
        found: list[tuple[int, Found]] = []
        for block in _blocks(problem):
            try:
                assignment = _best_within(problem.restricted(_allowed(problem, network, block)))
            except (Infeasible, NothingFound):
                continue
            places = problem.places(assignment)
            note = f"block {block}" if block else "plain"
            found.append((problem.cost_at(places), Found(places=places, note=note)))
        if not found:
            _best_within(problem)
            raise nothing_found(problem, self.name)
        return min(found, key=lambda each: each[0])[1]


def _allowed(problem: Problem, network: Network, block: int) -> dict[str, list[str]]:
    """The values left to each variable for one block size."""
    for number in sorted(range(len(problem.variables)), key=lambda n: problem.variables[n].kind):
        names = problem.variables[number].values
        left = network.values[number]
        kept = [place for place, value in enumerate(left) if _has(names[value], block)]
        if 0 < len(kept) < len(left):
            trial = network.copy()
            trial.keep(number, kept)
            if propagate(trial, [number]):
                network = trial
    return {
        variable.name: [variable.values[place] for place in left]
        for variable, left in zip(problem.variables, network.values, strict=True)
    }


def _blocks(problem: Problem) -> list[int]:
    """All block sizes that values name, ascending; 0, for plain, comes first."""
    values = (value for variable in problem.variables for value in variable.values)
    return sorted({0}.union(*map(_named, values)))


def _named(value: str) -> set[int]:
    """The block sizes a value names: `direct:plain,blocked16` → {0, 16}."""
    matches = [_LAYOUT.fullmatch(word) for word in re.split("[:,]", value)]
    return {int(match[1] or 0) for match in matches if match}


def _has(value: str, block: int) -> bool:
    """Whether a value has this block and no other; plain ports do not count beside it."""
    named = _named(value)
    return bool(named) and named - {0} == ({block} if block else set())
