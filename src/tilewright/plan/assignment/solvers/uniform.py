"""One block size everywhere, as inference engines with a fixed blocked layout have it.

For each block size, every variable that has values of it is left only those, choices first, unless
that would leave another variable none. What remains is solved exactly; the best block size wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.plan.assignment.factors import Network, network_of
from tilewright.plan.assignment.problem import Problem
from tilewright.plan.assignment.reduction import propagate
from tilewright.plan.assignment.solution import (
    Found,
    Infeasible,
    NothingFound,
    infeasible,
    nothing_found,
)
from tilewright.plan.assignment.solvers.within import best_within

_LAYOUT = re.compile(r"plain|blocked([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Proves nothing. `plain` counts as a block size of its own."""

    name: str = "uniform"

    def find(self, problem: Problem) -> Found:
        """The best assignment with one block size."""
        network = network_of(problem)
        if not propagate(network):
            raise infeasible(problem)
        best: tuple[int, dict[str, str], str] | None = None
        for block in _blocks(problem):
            try:
                assignment = best_within(problem.restricted(_allowed(problem, network, block)))
            except (Infeasible, NothingFound):
                continue
            cost = problem.cost(assignment)
            if best is None or cost < best[0]:
                best = cost, assignment, f"block {block}" if block else "plain"
        if best is None:
            best_within(problem)
            raise nothing_found(problem, self.name)
        return Found(places=problem.places(best[1]), note=best[2])


def _allowed(problem: Problem, network: Network, block: int) -> dict[str, list[str]]:
    """The values left to each variable for one block size."""
    order = sorted(range(len(problem.variables)), key=lambda n: problem.variables[n].kind)
    for number in order:
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
    found = {0}
    for variable in problem.variables:
        found.update(*(_named(value) for value in variable.values))
    return sorted(found)


def _named(value: str) -> set[int]:
    """The block sizes a value names: `direct:plain,blocked16` → {0, 16}."""
    matches = [_LAYOUT.fullmatch(word) for word in re.split("[:,]", value)]
    return {int(match[1] or 0) for match in matches if match}


def _has(value: str, block: int) -> bool:
    """Whether a value has this block and no other; plain ports do not count beside it."""
    named = _named(value)
    return bool(named) and named - {0} == ({block} if block else set())


SOLVER = Uniform()
