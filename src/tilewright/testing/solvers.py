"""What every solver must keep, as checks that another package can run on its own.

    from tilewright.testing.solvers import SolverConformance

    class TestMySolver(SolverConformance):
        solver = MySolver()

Every check compares with all assignments of small problems tried one by one, or with an optimum
that is known. A solver may give up on any problem (NothingFound, TooWide); what it says, it must
keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from tilewright.plan.assignment.problem import FORBIDDEN, Problem, Table, TableRole, Variable
from tilewright.plan.assignment.solution import (
    Found,
    Infeasible,
    NothingFound,
    Solver,
    TooWide,
    allowed,
)
from tilewright.plan.assignment.solving import solve

_RANDOM = 40
_ROLES: tuple[TableRole, ...] = ("kernel", "transform", "rule")


def variable(name: str, *values: str, choice: bool = False) -> Variable:
    """A variable of these values, two layouts where none are given."""
    kind = "choice" if choice else "layout"
    return Variable(name=name, kind=kind, values=values or ("plain", "blocked16"))


def table(names: str, costs: Any, role: TableRole = "kernel") -> Table:
    """A table over variables that are named in one text; None in the costs forbids."""
    array = np.array(costs, dtype=object)
    array[array == np.array(None)] = FORBIDDEN
    return Table(variables=tuple(names.split()), costs=array.astype(np.int64), role=role)


def random_problem(seed: int) -> Problem:
    """Up to six variables of up to three values; tables over one to three of them, some of which
    forbid much; several parts, parallel tables, costs from 0 to a second."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    variables = [
        variable(f"v{n}", *(f"value{p}" for p in range(rng.integers(1, 4))), choice=n % 2 == 1)
        for n in range(count)
    ]
    scopes: list[list[int]] = [
        rng.choice(count, size=rng.integers(1, min(3, count) + 1), replace=False).tolist()
        for _ in range(rng.integers(1, 9))
    ]
    touched = {number for scope in scopes for number in scope}
    scopes += [[number] for number in range(count) if number not in touched]
    most, share = (3, 10**6, 10**12)[seed % 3], (0.0, 0.2, 0.5)[seed // 3 % 3]
    tables: list[Table] = []
    for scope in scopes:
        shape = [len(variables[number].values) for number in scope]
        costs = rng.integers(0, most, size=shape, endpoint=True)
        costs[rng.random(shape) < share] = FORBIDDEN
        names = tuple(variables[number].name for number in scope)
        tables.append(Table(variables=names, costs=costs, role=_ROLES[len(tables) % 3]))
    return Problem(variables=tuple(variables), tables=tuple(tables), name=f"random {seed}")


def chain(length: int = 60) -> Problem:
    """Layouts in a row, each with four values, and a price for every change: as deep networks."""
    rng = np.random.default_rng(length)
    values = ("plain", "blocked8", "blocked16", "blocked32")
    variables = tuple(variable(f"v{n}", *values) for n in range(length))
    changes = 1000 * (1 - np.eye(4, dtype=np.int64))
    tables = [table(f"v{n}", rng.integers(1, 3000, size=4)) for n in range(length)]
    tables += [table(f"v{n} v{n + 1}", changes, "transform") for n in range(length - 1)]
    return Problem(variables=variables, tables=tuple(tables), name="a chain")


def least_ps(problem: Problem) -> int | None:
    """The least cost of all assignments of a small problem; None where none is allowed."""
    names = [each.name for each in problem.variables]
    costs = (
        problem.cost(dict(zip(names, values, strict=True)))
        for values in product(*(each.values for each in problem.variables))
    )
    return min((cost for cost in costs if allowed(cost)), default=None)


def answer(solver: Solver, problem: Problem) -> Found | None:
    """What a solver finds, looked at: places of values that exist, at an allowed cost that is not
    below the bound. None where it gives up."""
    try:
        found = solver.find(problem)
    except (NothingFound, TooWide):
        return None
    assert len(found.places) == len(problem.variables), "not one place for each variable"
    for each, place in zip(problem.variables, found.places, strict=True):
        assert 0 <= place < len(each.values), f"{each.name} has no value number {place}"
    cost = problem.cost(problem.assignment(found.places))
    assert allowed(cost), f"its assignment of {problem.title} is forbidden"
    assert found.bound_ps is None or found.bound_ps <= cost, "its bound is above its own answer"
    return found


def check_small_problems(solver: Solver, optimal: bool = False) -> None:
    """Answers are allowed, bounds are not above the optimum, and what is said to be infeasible is.

    With `optimal` every answer must be an optimum, and there must be one.
    """
    for problem in map(random_problem, range(_RANDOM)):
        least = least_ps(problem)
        try:
            found = answer(solver, problem)
        except Infeasible:
            assert least is None, f"{problem.title} has an assignment of {least} ps"
            continue
        if found is None:
            assert not optimal, f"it gave up on {problem.title}"
            continue
        assert least is not None
        cost = problem.cost(problem.assignment(found.places))
        assert (found.bound_ps or 0) <= least, f"its bound is above the optimum of {problem.title}"
        assert not optimal or cost == least, f"{cost} ps of {problem.title} is not {least} ps"


def check_forbidden(solver: Solver) -> None:
    """Where one assignment alone is allowed, it is found or none is."""
    only = Problem(
        variables=(variable("a"), variable("b"), variable("c", choice=True)),
        tables=(
            table("a b", [[None, 5], [3, None]]),
            table("c b", [[1, None], [None, None]], "rule"),
            table("a", [None, 8]),
        ),
    )
    found = answer(solver, only)
    assert found is None or tuple(found.places) == (1, 0, 0)


def check_infeasible(solver: Solver) -> None:
    """Where nothing is allowed, it says so, or that it found nothing."""
    nothing = Problem(
        variables=(variable("a"), variable("b")),
        tables=(table("a b", [[None, None], [None, None]]),),
    )
    apart = Problem(
        variables=(variable("a"), variable("b"), variable("c")),
        tables=(table("a b", [[1, None], [None, None]]), table("b c", [[None, None], [1, 2]])),
    )
    for problem in (nothing, apart):
        try:
            found = answer(solver, problem)
        except Infeasible:
            continue
        assert found is None, "it found an assignment where every one is forbidden"


def check_costs_are_recomputed(solver: Solver) -> None:
    """`solve` tells the cost of the assignment, and a bound that is not above it."""
    for problem in (*map(random_problem, range(9)), chain(12)):
        try:
            solution = solve(problem, solver)
        except (Infeasible, NothingFound, TooWide):
            continue
        assert solution.objective_ps == problem.cost(solution.assignment)
        assert solution.bound_ps <= solution.objective_ps


def check_long_chains(solver: Solver) -> None:
    """Sixty layouts in a row: an answer, or none, but no endless search and no wrong bound."""
    problem = chain()
    found = answer(solver, problem)
    if found is not None:
        least = solve(problem, "exact").objective_ps
        assert (found.bound_ps or 0) <= least
        assert problem.cost(problem.assignment(found.places)) >= least


def check_same_answer(solver: Solver) -> None:
    """Asked twice, it answers the same."""
    for problem in (random_problem(3), chain(12)):
        first, second = _places(solver, problem), _places(solver, problem)
        assert first == second, f"asked twice, its answers to {problem.title} differ"


def check_problem_is_left_alone(solver: Solver) -> None:
    """The tables of a problem are as they were."""
    for problem in (random_problem(4), chain(12)):
        before = [each.costs.copy() for each in problem.tables]
        _places(solver, problem)
        for each, costs in zip(problem.tables, before, strict=True):
            assert np.array_equal(each.costs, costs), f"it changed a table of {each.variables}"


def check_name(solver: Solver) -> None:
    """It has a name, by which it is selected."""
    assert isinstance(solver.name, str) and solver.name, "it has no name"


def _places(solver: Solver, problem: Problem) -> Sequence[int] | None:
    try:
        found = answer(solver, problem)
    except Infeasible:
        return None
    return None if found is None else list(found.places)


CHECKS: tuple[Callable[[Solver], None], ...] = (
    check_small_problems,
    check_forbidden,
    check_infeasible,
    check_costs_are_recomputed,
    check_long_chains,
    check_same_answer,
    check_problem_is_left_alone,
    check_name,
)


def check_solver(solver: Solver) -> None:
    """All checks one after the other; raises AssertionError with what was not kept."""
    for check in CHECKS:
        check(solver)


class SolverConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `solver`, and `optimal` where
    the solver always finds an optimum of small problems."""

    solver: ClassVar[Solver]
    optimal: ClassVar[bool] = False

    def test_small_problems(self) -> None:
        check_small_problems(self.solver, self.optimal)

    def test_forbidden(self) -> None:
        check_forbidden(self.solver)

    def test_infeasible(self) -> None:
        check_infeasible(self.solver)

    def test_costs_are_recomputed(self) -> None:
        check_costs_are_recomputed(self.solver)

    def test_long_chains(self) -> None:
        check_long_chains(self.solver)

    def test_same_answer(self) -> None:
        check_same_answer(self.solver)

    def test_problem_is_left_alone(self) -> None:
        check_problem_is_left_alone(self.solver)

    def test_name(self) -> None:
        check_name(self.solver)
