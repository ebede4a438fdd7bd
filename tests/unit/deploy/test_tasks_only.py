"""What is answered for a device on which no whole network runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_measuring import PLACEMENT
from level_fakes import PEAKS
from network_fakes import prepared, two_convolutions

from tilewright.core.errors import NegativeVerdict
from tilewright.deploy.tasks_only import NOTE, tasks_only
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import TaskKey

pytestmark = pytest.mark.regression

NETWORK = prepared(two_convolutions())


def tuned(*seconds: float | None) -> PlanResult:
    """The plan in default settings, its tasks timed where there is a number."""
    known: dict[TaskKey, CallResult] = {}
    for key, time_s in zip(NETWORK.tasks, seconds, strict=True):
        timed: Any = SimpleNamespace(latency_s=time_s, spread=0.0)
        known[key] = CallResult(alone=None if time_s is None else timed)
    return PlanResult(name="tuned", plan=NETWORK.plan).with_tasks(known)


def test_shares_are_of_the_sum_of_the_tasks() -> None:
    count = len(NETWORK.tasks)
    result = tasks_only(NETWORK, tuned(*[1e-3] * count), PEAKS, PLACEMENT)
    assert sum(row.share or 0.0 for row in result.tasks) == pytest.approx(1.0)
    assert result.rest_share == 0.0 and result.warnings == (NOTE,)


def test_tasks_that_were_never_measured_are_told() -> None:
    count = len(NETWORK.tasks)
    result = tasks_only(NETWORK, tuned(1e-3, *[None] * (count - 1)), PEAKS, PLACEMENT)
    assert result.tasks[0].share == 1.0
    assert {row.share for row in result.tasks[1:]} == {None}
    assert f"{count - 1} of {count} tasks were never measured" in result.warnings[1]
    with pytest.raises(NegativeVerdict):
        tasks_only(NETWORK, tuned(*[None] * count), PEAKS, PLACEMENT)
