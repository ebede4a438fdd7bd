"""What is said about the time between a network's calls, and how rows name the network."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import tilewright
from helpers.fakes.measuring import PLACEMENT, measured
from helpers.plugins.simulated_gpu import h100
from tilewright.core.records import Placement
from tilewright.core.timings import Timing
from tilewright.cost.floors import Peaks
from tilewright.deploy.shipment import times_of_tasks
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare


@pytest.mark.parametrize(
    ("place", "told"), [(h100, "and the launches)"), (lambda: PLACEMENT, "the virtual machine)")]
)
def test_what_lies_between_calls_is_what_runs_them(
    place: Callable[[], Placement], told: str
) -> None:
    placement = place()
    network = prepare("zoo:mlp", ModelOptions(), placement)
    known = {
        key: CallResult(alone=measured(task.workload, network.plan.candidates[key], 1e-5))
        for key, task in network.tasks.items()
    }
    result = PlanResult(name="made up", plan=network.plan, timing=Timing(rounds_s=((6e-5,),)))
    peaks = Peaks(flop_per_s=1e13, bytes_per_s=1e12, cache_bytes_per_s=2e12)
    found = times_of_tasks(network, result.with_tasks(known), placement, peaks)
    assert "10.0 µs for each of 3 kernel calls" in found["explanation"]
    assert told in found["explanation"]


def test_every_row_names_the_model_as_it_was_asked_for(tmp_path: Path) -> None:
    with tilewright.Session(target="simulated", db=tmp_path / "t.db") as session:
        session.optimize("zoo:mlp", budget=6, out=tmp_path / "out")
        session.profile("zoo:mlp")
        session.collect((), ["zoo:mlp"], budget=3)
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        for table in ("runs", "networks", "measurements"):
            assert {*database.execute(f"select distinct model from {table}")} == {("zoo:mlp",)}
