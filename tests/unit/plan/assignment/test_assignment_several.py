"""The best few assignments, against trying everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from helpers.problems.assignment_problems import KINDS, problems, ranked, table, variable
from helpers.problems.synthetic_problems import joined_network, tangled_network
from tilewright.core.errors import UsageError
from tilewright.plan.assignment import several as module
from tilewright.plan.assignment.problem import Problem, VariableKind
from tilewright.plan.assignment.several import several
from tilewright.plan.assignment.solution import Infeasible
from tilewright.plan.assignment.solvers.eliminating import Exact


@pytest.mark.parametrize("kinds", [KINDS, ("choice",), ("layout",)])
@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_the_best_few(kinds: tuple[VariableKind, ...], problem: Problem) -> None:
    costs = ranked(problem, kinds)
    if not costs:
        with pytest.raises(Infeasible):
            several(problem, 6, differing=kinds)
        return
    found = several(problem, 6, differing=kinds)
    assert [each.objective_ps for each in found] == costs[:6]
    assert all(problem.cost(each.assignment) == each.objective_ps for each in found)
    assert {each.bound_ps for each in found} == {costs[0]}
    names = [each.name for each in problem.variables if each.kind in kinds]
    assert len({tuple(each.assignment[name] for name in names) for each in found}) == len(found)


def test_equal_costs_are_different_assignments() -> None:
    free = Problem(
        variables=(variable("a"), variable("b")), tables=(table("a b", [[1, 1], [1, 1]]),)
    )
    found = several(free, 9)
    assert [each.objective_ps for each in found] == [1, 1, 1, 1]
    assert len({tuple(each.assignment.values()) for each in found}) == 4


def test_a_network() -> None:
    found = several(joined_network(3, candidates=8, layouts=5), 5, differing=("choice",))
    costs = [each.objective_ps for each in found]
    assert len(costs) == 5
    assert costs == sorted(costs)


def test_too_wide_a_problem_gets_what_the_solvers_find(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = tangled_network(4, candidates=4, layouts=4)
    best = several(problem, 1)[0]
    monkeypatch.setattr(module, "QUICK", Exact(most_cells=10))
    found = several(problem, 3)
    assert found[0].objective_ps == best.objective_ps
    assert 1 < len(found) <= 3
    costs = [each.objective_ps for each in found]
    assert costs == sorted(costs)
    assert len({tuple(each.assignment.values()) for each in found}) == len(found)


def test_the_count_is_checked() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        several(joined_network(1, candidates=2, layouts=2), 0)
