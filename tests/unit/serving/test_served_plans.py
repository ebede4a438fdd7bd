"""Which plans are served in one process, and which in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright
from tilewright.core.schedules import PLAN_FILE
from tilewright.plan.scheduling.parts import Objective
from tilewright.plan.scheduling.plan_file import read_plan, write_plan
from tilewright.serving import serve
from tilewright.serving.instance import Supervision
from tilewright.serving.plan_serving import SUPERVISION
from tilewright.serving.server import ServerOptions


@pytest.mark.parametrize(
    ("objective", "where", "supervision"),
    [
        ("latency", "plan_instance", Supervision()),
        ("price", "plan_instance", Supervision()),
        ("throughput", "PlanServer", SUPERVISION),
        ("energy", "PlanServer", SUPERVISION),
    ],
)
def test_what_is_served_in_one_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objective: Objective,
    where: str,
    supervision: Supervision,
) -> None:
    """In one process there is one request at a time, so what was planned to overlap would not, and
    a call with nothing beside it has all cores, so what was planned to draw less would not."""
    made: list[tuple[str, Supervision]] = []

    def noting(name: str) -> Callable[..., None]:
        def note(*given: object) -> None:
            (options,) = (each for each in given if isinstance(each, ServerOptions))
            made.append((name, options.supervision))

        return note

    for name in ("plan_instance", "PlanServer"):
        monkeypatch.setattr(serve, name, noting(name))
    with tilewright.open(db="memory:", threads=1) as session:
        session.plan("zoo:mlp", ["llvm"], planner="sequential", out=tmp_path)
        plan = read_plan(tmp_path)
        calls = (
            replace(call, modes=tuple(replace(mode, energy_j=1e-3) for mode in call.modes))
            for call in plan.problem.calls
        )
        problem = replace(
            plan.problem,
            objective=objective,
            calls=tuple(calls),
            devices=tuple(
                replace(device, idle_w=1.0, price_per_hour=1.0) for device in plan.problem.devices
            ),
        )
        write_plan(replace(plan, problem=problem), tmp_path / PLAN_FILE)
        serve.plan_server(tmp_path, session.records, mode="parallel")
    assert made == [(where, supervision)]
