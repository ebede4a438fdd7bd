"""Every solver against trying everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from helpers.problems.assignment_problems import OPTIMA, SHAPES, problems, ranked, table, variable
from helpers.problems.synthetic_problems import (
    dense_network,
    headed_network,
    joined_network,
    residual_network,
    tangled_network,
)
from tilewright.core.errors import UsageError
from tilewright.core.solutions import Solution
from tilewright.plan.assignment.problem import FORBIDDEN, Problem
from tilewright.plan.assignment.solution import Infeasible, NothingFound, TooWide
from tilewright.plan.assignment.solvers.eliminating import DynamicProgram, Exact
from tilewright.plan.assignment.solvers.milp import Milp
from tilewright.plan.assignment.solving import SOLVERS, Auto, solve

PROVING = ("auto", "exact", "dp", "milp")
MAY_FAIL = tuple(name for name in SOLVERS.names() if name not in PROVING)


def checked(problem: Problem, name: str) -> Solution:
    """A solution whose own claims about itself hold."""
    solution = solve(problem, name)
    assert set(solution.assignment) == {each.name for each in problem.variables}
    assert problem.cost(solution.assignment) == solution.objective_ps < FORBIDDEN
    assert 0 <= solution.bound_ps <= solution.objective_ps
    if solution.objective_ps:
        missing = solution.objective_ps - solution.bound_ps
        assert solution.gap == missing / solution.objective_ps
    return solution


@pytest.mark.parametrize("name", PROVING)
@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_provers_find_the_optimum(name: str, problem: Problem) -> None:
    costs = ranked(problem)
    if not costs:
        with pytest.raises(Infeasible):
            solve(problem, name)
        return
    solution = checked(problem, name)
    assert solution.objective_ps == costs[0]
    assert solution.gap < 1e-8
    if name != "milp":
        assert solution.gap == 0


@pytest.mark.parametrize("name", MAY_FAIL)
@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_others_give_allowed_assignments_and_sound_bounds(name: str, problem: Problem) -> None:
    costs = ranked(problem)
    try:
        solution = checked(problem, name)
    except Infeasible:
        assert not costs
    except NothingFound:
        pass
    else:
        assert solution.bound_ps <= costs[0] <= solution.objective_ps


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SOLVERS.names())
def test_shapes_that_tuners_stumbled_over(name: str, shape: str) -> None:
    problem = SHAPES[shape]
    assert ranked(problem)[0] == OPTIMA[shape]
    solution = checked(problem, name)
    if name in (*PROVING, "pbqp"):
        assert (solution.objective_ps, solution.gap) == (OPTIMA[shape], 0.0)


@pytest.mark.parametrize("name", SOLVERS.names())
def test_infeasible_problems_are_told(name: str) -> None:
    two = (variable("a"), variable("b"))
    nothing = Problem(variables=two, tables=(table("a b", [[None, None], [None, None]]),))
    with pytest.raises(Infeasible, match="no allowed assignment"):
        solve(nothing, name)
    assert Infeasible.exit_code == 4


@pytest.mark.parametrize("name", PROVING)
def test_infeasibility_that_no_single_table_shows(name: str) -> None:
    three = tuple(variable(each) for each in "abc")
    differ = [[None, 0], [0, None]]
    odd = Problem(
        variables=three, tables=(table("a b", differ), table("b c", differ), table("a c", differ))
    )
    with pytest.raises(Infeasible):
        solve(odd, name)


def test_history_best_ignores_transforms_and_exact_does_not() -> None:
    problem = Problem(
        variables=(
            variable("x", "plain"),
            variable("f", "f:plain,plain", "f:blocked16,blocked16", kind="choice"),
            variable("y"),
        ),
        tables=(
            table("f", [30, 20]),
            table("x f", [[0, 40]], "transform"),
            table("f y", [[0, None], [None, 0]], "rule"),
        ),
    )
    best = checked(problem, "history_best")
    assert best.assignment["f"] == "f:blocked16,blocked16"
    assert best.assignment["y"] == "blocked16"
    assert (best.objective_ps, best.bound_ps) == (60, 30)
    assert checked(problem, "exact").objective_ps == 30
    assert problem.cost_by_role(best.assignment) == {"kernel": 20, "transform": 40, "rule": 0}


def test_history_best_takes_the_next_kernel_where_the_best_clash() -> None:
    kernels = ("f:plain", "f:blocked16")
    problem = Problem(
        variables=(
            variable("f", *kernels, kind="choice"),
            variable("g", *kernels, kind="choice"),
        ),
        tables=(
            table("f", [5, 6]),
            table("g", [9, 1]),
            table("f g", [[0, None], [None, 0]], "rule"),
        ),
    )
    assert checked(problem, "history_best").objective_ps == 14
    assert checked(problem, "exact").objective_ps == 7


def test_uniform_keeps_one_block_size() -> None:
    ports = ("plain", "blocked8", "blocked16")
    problem = Problem(
        variables=(
            variable("x", "plain"),
            variable("f", *(f"f:plain,{port}" for port in ports), kind="choice"),
            variable("y", *ports),
            variable("g", *(f"g:{port},{port}" for port in ports), kind="choice"),
        ),
        tables=(
            table("x f", [[40, 10, 20]]),
            table("f y", [[0, None, None], [None, 0, None], [None, None, 0]], "rule"),
            table("y g", [[0, 5, 5], [5, 0, 5], [5, 5, 0]], "transform"),
            table("g", [40, 30, 10]),
        ),
    )
    uniform = checked(problem, "uniform")
    assert uniform.note == "block 16"
    assert (uniform.objective_ps, uniform.bound_ps) == (30, 25)
    assert checked(problem, "exact").objective_ps == 25


def test_pbqp_says_whether_it_proves() -> None:
    chain = residual_network(2, candidates=4, layouts=3)
    solution = checked(chain, "pbqp")
    assert solution.note == "RN was not needed"
    assert solution.gap == 0
    wide = tangled_network(6, candidates=4, layouts=4)
    assert "RN fixed" in checked(wide, "pbqp").note


@pytest.mark.parametrize("make", [residual_network, joined_network, dense_network, headed_network])
def test_exact_is_no_worse_than_any_other(make: Callable[..., Problem]) -> None:
    problem = make(6, candidates=9, layouts=5, seed=1)
    exact = checked(problem, "exact")
    assert exact.gap == 0
    for name in SOLVERS.names():
        try:
            assert checked(problem, name).objective_ps >= exact.objective_ps
        except TooWide:
            assert name == "dp"


def test_limits_are_told_and_auto_goes_round_them() -> None:
    problem = tangled_network(5, candidates=4, layouts=4)
    with pytest.raises(TooWide, match="width"):
        solve(problem, Exact(most_cells=100))
    with pytest.raises(TooWide, match="states"):
        solve(problem, DynamicProgram(max_num_states=100))
    with pytest.raises(TooWide):
        solve(problem, Milp(most_columns=10))
    exact = checked(problem, "exact")
    auto = solve(problem, Auto(exact=Exact(most_cells=100)))
    assert auto.solver == "milp"
    assert auto.objective_ps == exact.objective_ps
    assert exact.objective_ps * (1 - 1e-8) <= auto.bound_ps <= exact.objective_ps


def test_dp_suffers_from_its_order_where_exact_does_not() -> None:
    problem = headed_network(12, candidates=8, layouts=6)
    with pytest.raises(TooWide, match="unresolved"):
        solve(problem, "dp")
    assert checked(problem, "exact").gap == 0


def test_solvers_by_name() -> None:
    assert SOLVERS.named("history-best").name == "history_best"
    assert [SOLVERS.named(name).name for name in SOLVERS.names()] == [*SOLVERS.names()]
    with pytest.raises(UsageError, match="exact"):
        SOLVERS.named("exakt")
