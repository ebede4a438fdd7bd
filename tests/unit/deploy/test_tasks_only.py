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
from tilewright.kernels.spaces import default_candidate
from tilewright.search.winners import Winner

pytestmark = pytest.mark.regression

NETWORK = prepared(two_convolutions())


def winners(*seconds: float | None) -> dict[Any, Winner]:
    """A default candidate for each task, timed where there is a number."""
    found: dict[Any, Winner] = {}
    for (key, task), time_s in zip(NETWORK.tasks.items(), seconds, strict=True):
        candidate = default_candidate(task.workload, task.forms, PLACEMENT)[0]
        timed: Any = SimpleNamespace(latency_s=time_s, spread=0.0)
        found[key] = Winner(
            candidate=candidate, measurement=None if time_s is None else timed, check=None
        )
    return found


def test_shares_are_of_the_sum_of_the_tasks() -> None:
    count = len(NETWORK.tasks)
    result = tasks_only(NETWORK, winners(*[1e-3] * count), PEAKS, PLACEMENT)
    assert sum(row.share or 0.0 for row in result.tasks) == pytest.approx(1.0)
    assert result.rest_share == 0.0 and result.warnings == (NOTE,)


def test_tasks_that_were_never_measured_are_told() -> None:
    count = len(NETWORK.tasks)
    result = tasks_only(NETWORK, winners(1e-3, *[None] * (count - 1)), PEAKS, PLACEMENT)
    assert result.tasks[0].share == 1.0
    assert {row.share for row in result.tasks[1:]} == {None}
    assert f"{count - 1} of {count} tasks were never measured" in result.warnings[1]
    with pytest.raises(NegativeVerdict):
        tasks_only(NETWORK, winners(*[None] * count), PEAKS, PLACEMENT)
