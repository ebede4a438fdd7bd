"""`benchmarks/scheduling.py limits`: thousands of random problems for every planner."""

from __future__ import annotations

import pytest

import scheduling
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.planning import SCHEDULERS
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.testing.schedulers import random_problem


@pytest.mark.on_request
def test_no_planner_breaks_a_limit_of_thousands_of_problems() -> None:
    assert scheduling.limits((), problems=2000, seconds=0.2) == 0


def test_what_is_broken_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails where a planner leaves calls out, and not for others."""
    assert scheduling.limits(["heft", "chain_dp"], problems=3, seconds=0.1) == 0
    sound = Sequential().schedule(random_problem(0), 0.1)

    class Forgetful(Sequential):
        def schedule(self, problem: object, limit_s: float) -> Schedule:
            return sound

    monkeypatch.setattr(scheduling.SCHEDULERS, "named", lambda _: Forgetful())
    assert scheduling.limits(SCHEDULERS.names()[:1], problems=3, seconds=0.1) == 1
    assert ", problem 1: " in capsys.readouterr().err
