"""Which plans are served in one process, and which in parts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from helpers.fakes.toy_serving import QUICK, toy_network, x_of, y_of
from helpers.fakes.toy_serving_worker import CRASH, FAULT, HANG, STARTS_NOT
from tilewright.core.events import Event
from tilewright.core.schedules import PLAN_FILE
from tilewright.plan.scheduling.parts import Objective
from tilewright.plan.scheduling.plan_file import read_plan, write_plan
from tilewright.serving import plan_instance, serve
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


class Ways:
    """In the place of `PlannedWays`: a network in both ways."""

    class placement:  # noqa: N801
        class resources:  # noqa: N801
            threads = 1


class ToyPlan:
    class network:  # noqa: N801
        name = model = "a"

    networks = (network,)


@pytest.mark.parametrize(
    ("file", "fault", "timed"),
    [
        (STARTS_NOT, "", False),
        (FAULT, CRASH, True),
        pytest.param(FAULT, HANG, True, marks=pytest.mark.on_request),
        pytest.param(FAULT, HANG, False, marks=pytest.mark.on_request),
        pytest.param(FAULT, CRASH, False, marks=pytest.mark.on_request),
        pytest.param(STARTS_NOT, "", True, marks=pytest.mark.on_request),
    ],
)
def test_a_plan_in_one_process_that_fails_on_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, fault: float | str, timed: bool
) -> None:
    """At its start, or when requests are timed: the server computes one call after the other."""
    both = {way: toy_network(tmp_path, way) for way in ("sequential", "parallel")}
    named = {way: replace(each, name="a") for way, each in both.items()}
    time_as_usual = plan_instance._timed

    def inject() -> None:
        (tmp_path / "parallel" / file).write_text(str(fault))

    def time(server: Any, *given: Any) -> list[float]:
        inject()
        if file == STARTS_NOT:
            os.kill(server.statistics().instances[0].pid, signal.SIGKILL)
        return time_as_usual(server, *given)

    monkeypatch.setattr(plan_instance, "planned_ways", lambda *_: Ways)
    monkeypatch.setattr(plan_instance, "_compiled", lambda *_: named)
    monkeypatch.setattr(plan_instance, "_timed", time)
    if not timed:
        inject()
    notes: list[Event] = []
    options = ServerOptions(
        worker="helpers.fakes.toy_serving_worker", supervision=QUICK, events=notes.append
    )
    plan: Any = ToyPlan
    store: Any = None
    with plan_instance.plan_instance(plan, store, "auto", options) as server:
        assert "one call after the other, in one process; as planned it failed" in server.choice
        assert any("The plan fails, and is not carried out" in str(note) for note in notes)
        for number in range(3):
            found = server.submit("a", x=x_of(number)).result(20)
            np.testing.assert_array_equal(found, y_of(x_of(number)))
        assert server.statistics().networks[0].answered == 3
