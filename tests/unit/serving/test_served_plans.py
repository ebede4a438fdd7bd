"""Which plans are served in one process, and which in parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright
from tilewright.plan.network_scheduling import Wanted
from tilewright.plan.scheduling.parts import Objective
from tilewright.serving import serve


@pytest.mark.parametrize(
    ("objective", "where"), [("latency", "plan_instance"), ("throughput", "PlanServer")]
)
def test_requests_of_a_plan_for_throughput_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: Objective, where: str
) -> None:
    """In one process there is one request at a time, so what was planned to overlap would not."""
    made: list[str] = []

    def noting(name: str) -> Callable[..., None]:
        def note(*_given: object) -> None:
            made.append(name)

        return note

    for name in ("plan_instance", "PlanServer"):
        monkeypatch.setattr(serve, name, noting(name))
    with tilewright.open(db="memory:", threads=1) as session:
        wanted = Wanted(objective=objective)
        session.plan("zoo:mlp", ["llvm"], planner="sequential", wanted=wanted, out=tmp_path)
        serve.plan_server(tmp_path, session.records, mode="parallel")
    assert made == [where]
