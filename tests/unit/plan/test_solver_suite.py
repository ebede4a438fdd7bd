"""The suite of solvers: ours pass it, and it finds those that break a promise."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.plan.assignment.solution import Found, Infeasible, NothingFound, infeasible
from tilewright.plan.assignment.solvers.eliminating import Exact
from tilewright.plan.assignment.solving import SOLVERS
from tilewright.testing import solvers as suite
from tilewright.testing.solvers import SolverConformance

OPTIMAL = ("auto", "exact", "milp", "dp")


@pytest.mark.parametrize("name", SOLVERS.names())
def test_ours_keep_every_promise(name: str) -> None:
    suite.check_solver(SOLVERS.named(name))
    suite.check_small_problems(SOLVERS.named(name), optimal=name in OPTIMAL)


class TestGreedy(SolverConformance):
    solver = SOLVERS.named("greedy")


class TestExact(SolverConformance):
    solver = SOLVERS.named("exact")
    optimal = True


class Bad:
    """The exact solver with one fault."""

    name = "bad"

    def find(self, problem) -> Found:
        return Exact().find(problem)


class FirstValues(Bad):
    """Takes no notice of what is forbidden."""

    def find(self, problem):
        return Found(places=[0] * len(problem.variables))


class Boasts(Bad):
    """Says that it proved what it found, whatever that is."""

    def find(self, problem):
        found = SOLVERS.named("greedy").find(problem)
        cost = problem.cost(problem.assignment(found.places))
        return Found(places=found.places, bound_ps=cost)


class Despairs(Bad):
    def find(self, problem):
        raise infeasible(problem)


class Short(Bad):
    def find(self, problem):
        return Found(places=Exact().find(problem).places[1:])


class OutOfRange(Bad):
    def find(self, problem):
        return Found(places=[9 for _ in problem.variables])


class Moody(Bad):
    """Answers otherwise each time."""

    def __init__(self):
        self.times = 0

    def find(self, problem):
        self.times += 1
        return Exact().find(problem) if self.times % 2 else FirstValues().find(problem)


class Writes(Bad):
    """Works in the problem's own tables."""

    def find(self, problem):
        found = Exact().find(problem)
        for table in problem.tables:
            table.costs.flags.writeable = True
            np.add(table.costs, 1, out=table.costs)
        return found


class Dreams(Bad):
    """Invents an answer where there is none."""

    def find(self, problem):
        try:
            return Exact().find(problem)
        except Infeasible:
            return Found(places=[0] * len(problem.variables))


class Nameless(Bad):
    name = ""


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (suite.check_small_problems, FirstValues()),
        (suite.check_small_problems, Boasts()),
        (suite.check_small_problems, Despairs()),
        (suite.check_small_problems, Short()),
        (suite.check_small_problems, OutOfRange()),
        (suite.check_forbidden, FirstValues()),
        (suite.check_infeasible, Dreams()),
        (suite.check_costs_are_recomputed, Short()),
        (suite.check_long_chains, Boasts()),
        (suite.check_same_answer, Moody()),
        (suite.check_problem_is_left_alone, Writes()),
        (suite.check_name, Nameless()),
    ],
)
def test_solvers_that_break_a_promise_are_found(check, bad) -> None:
    check(SOLVERS.named("exact"))
    with pytest.raises((AssertionError, ValueError)):
        check(bad)


def test_optimal_solvers_must_be_optimal() -> None:
    with pytest.raises(AssertionError, match="is not"):
        suite.check_small_problems(SOLVERS.named("greedy"), optimal=True)


def test_the_random_problems_have_all_kinds() -> None:
    least = [suite.least_ps(suite.random_problem(seed)) for seed in range(40)]
    assert 5 <= sum(each is None for each in least) <= 20, "too few, or too many are infeasible"
    assert len({each for each in least if each is not None}) > 15


def test_a_forbidden_answer_is_nothing_found() -> None:
    from tilewright.plan.assignment.solving import solve

    only = suite.table("a", [None, 3])
    problem = suite.Problem(variables=(suite.variable("a"),), tables=(only,))
    with pytest.raises(NothingFound, match="bad found no allowed assignment"):
        solve(problem, FirstValues())


def test_the_class_runs_every_check() -> None:
    methods = [name for name in dir(SolverConformance) if name.startswith("test_")]
    assert sorted(methods) == sorted(c.__name__.replace("check_", "test_") for c in suite.CHECKS)
