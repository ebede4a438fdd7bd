"""The suite of planners: those of our solvers pass it, and it finds those that break a promise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from tilewright.core.errors import UsageError
from tilewright.core.plugins import PluginError
from tilewright.graph.plan_result import PlanResult
from tilewright.kernels.plans import with_candidates
from tilewright.plan import planners
from tilewright.plan.assignment.solving import SOLVERS
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import plan_with, planned, planner_named
from tilewright.testing import planners as suite
from tilewright.testing.planners import PlannerConformance


@pytest.mark.parametrize("name", SOLVERS.names())
def test_those_of_our_solvers_keep_every_promise(name: str) -> None:
    suite.check_planner(planner_named(name))


class TestExact(PlannerConformance):
    planner = planner_named("exact")


class Bad:
    """The planner of the exact solver with one fault."""

    name = "bad"

    def plan(self, problem: NetworkProblem, name: str) -> PlanResult:
        return self.spoilt(problem, planner_named("exact").plan(problem, name))

    def spoilt(self, problem: NetworkProblem, found: PlanResult) -> PlanResult:
        return found


class Renames(Bad):
    def spoilt(self, problem, found):
        return replace(found, name="mine")


class Miscounts(Bad):
    def spoilt(self, problem, found):
        return replace(found, solution=replace(found.solution, objective_ps=1))


class Boasts(Bad):
    def spoilt(self, problem, found):
        bound = found.solution.objective_ps + 1
        return replace(found, solution=replace(found.solution, bound_ps=bound))


class Silent(Bad):
    def spoilt(self, problem, found):
        return replace(found, solution=None)


class DoesOtherwise(Bad):
    """Plans the default layouts, whatever was chosen."""

    def spoilt(self, problem, found):
        return replace(found, plan=planned(problem, problem.problem.default))


class Unbuildable(Bad):
    """Names an implementation that takes none of the calls."""

    def spoilt(self, problem, found):
        chosen = {
            key: structs.replace(candidate, implementation="conv2d_winograd2")
            for key, candidate in found.plan.candidates.items()
        }
        return replace(found, plan=with_candidates(found.plan, chosen))


class AnotherNetwork(Bad):
    def plan(self, problem, name):
        other = next(each for each in suite.problems() if each is not problem)
        return planner_named("exact").plan(other, name)


class Claims(Bad):
    def spoilt(self, problem, found):
        return replace(found, measured=True)


class Moody(Bad):
    def __init__(self):
        self.times = 0

    def spoilt(self, problem, found):
        self.times += 1
        if self.times % 2:
            return found
        usual = problem.problem.default
        cost = problem.problem.cost(usual)
        solution = replace(found.solution, assignment=usual, objective_ps=cost)
        return replace(found, plan=planned(problem, usual), solution=solution)


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (suite.check_plan_is_of_the_network, Renames()),
        (suite.check_plan_is_of_the_network, AnotherNetwork()),
        (suite.check_numbers, AnotherNetwork()),
        (suite.check_every_call_can_be_computed, Unbuildable()),
        (suite.check_solution_is_of_the_problem, Miscounts()),
        (suite.check_solution_is_of_the_problem, Boasts()),
        (suite.check_solution_is_of_the_problem, Silent()),
        (suite.check_calls_do_what_was_chosen, DoesOtherwise()),
        (suite.check_measured_is_honest, Claims()),
        (suite.check_same_plan, Moody()),
    ],
)
def test_planners_that_break_a_promise_are_found(check, bad) -> None:
    check(planner_named("exact"))
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(bad)


def test_the_usual_choice_is_not_the_best() -> None:
    problem = suite.problems()[0]
    solution = planner_named("exact").plan(problem, "x").solution
    assert solution is not None and solution.assignment != problem.problem.default


def test_the_class_runs_every_check() -> None:
    methods = [name for name in dir(PlannerConformance) if name.startswith("test_")]
    assert sorted(methods) == sorted(c.__name__.replace("check_", "test_") for c in suite.CHECKS)


class Splits(Bad):
    """Puts the last call into a lane of its own."""

    def spoilt(self, problem, found):
        *calls, last = found.plan.calls
        waits = replace(last, lane="other", after=(calls[-1].name,) if calls else ())
        lanes = {**found.plan.lanes, "other": found.plan.only_lane}
        return replace(found, plan=replace(found.plan, calls=(*calls, waits), lanes=lanes))


def test_a_plan_of_several_lanes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planners, "planner_named", lambda _name: Splits())
    with pytest.raises(PluginError, match="a plan of 2 lanes"):
        plan_with("splits", suite.problems()[0], "x")


def test_a_plan_without_a_solution_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planners, "planner_named", lambda _name: Silent())
    with pytest.raises(PluginError, match="does not say which solution"):
        plan_with("bad", suite.problems()[0], "x")


def test_an_unknown_name_is_near_a_known_one() -> None:
    with pytest.raises(UsageError, match="no solver is called 'exakt'") as caught:
        planner_named("exakt")
    assert "exact" in (caught.value.hint or "")
