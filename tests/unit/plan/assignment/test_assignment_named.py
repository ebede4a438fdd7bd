"""The tuners under the names they had in TVM."""

from __future__ import annotations

import pytest

from helpers.problems.synthetic_problems import residual_network
from tilewright.core.errors import UsageError
from tilewright.plan.assignment.named import DPTuner, PBQPTuner
from tilewright.plan.assignment.solution import TooWide
from tilewright.plan.assignment.solving import solve

PROBLEM = residual_network(6, candidates=4, layouts=4)


@pytest.mark.parametrize(("tuner", "name"), [(DPTuner, "dp"), (PBQPTuner, "pbqp")])
def test_they_solve_our_problem(tuner: type[DPTuner] | type[PBQPTuner], name: str) -> None:
    made = tuner(PROBLEM)
    with pytest.raises(UsageError, match="has not run"):
        made.get_optimal_records()
    solution = made.run()
    assert solution.solver == name
    assert solution.objective_ps == solve(PROBLEM, name).objective_ps
    records = made.get_optimal_records()
    choices = [each for each in PROBLEM.variables if each.kind == "choice"]
    assert records == {each.subject: solution.assignment[each.name] for each in choices}


def test_states_can_be_limited() -> None:
    with pytest.raises(TooWide):
        DPTuner(PROBLEM, max_num_states=8).run()
