"""The simulated device: estimates for times, numpy for results, all verbs that need no machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright.core.errors import ModelError
from tilewright.core.events import Event, Note
from tilewright.core.records import Measurement, Protocol
from tilewright.graph.carry_out import carry_out
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.targeting import (
    open_measurer,
    open_networks,
    placement_of,
    usable_placement,
)
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.session import Session

ON = usable_placement(placement_of("simulated", None, 2))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tuple[Session, list[Event]]]:
    heard: list[Event] = []
    with Session(
        db=tmp_path / "a.db", target="simulated", threads=1, events=heard.append
    ) as opened:
        yield opened, heard


def test_times_are_estimates_and_results_are_right() -> None:
    network = prepare("op:conv2d[c=8,h=6,k=3,pad=1,out=16]", ModelOptions(), ON)
    task = max(network.tasks.values(), key=lambda task: task.workload.flop)
    guesses = ranked_defaults(task.workload, task.forms, ON)
    with open_measurer(ON, seed=0) as measurer:
        outcomes = measurer.measure(task.workload, [c for c, _ in guesses], Protocol())
        assert not np.isfinite(measurer.features(task.workload, [guesses[0][0]], "curve")).any()
    assert all(isinstance(outcome, Measurement) for outcome in outcomes)
    for outcome, (_, seconds) in zip(outcomes, guesses, strict=True):
        assert isinstance(outcome, Measurement)
        assert outcome.latency_s == pytest.approx(seconds, rel=1e-6)
        assert outcome.device_class.startswith("simulated-avx2")


def test_networks_are_carried_out_by_numpy_and_read_from_their_files(tmp_path: Path) -> None:
    network = prepare("zoo:mlp", ModelOptions(), ON)
    plan = network.plan
    image = {"input": np.ones((1, 784), np.float32)}
    with open_networks(ON) as networks:
        networks.compile(plan, network.graph.constants, tmp_path / "made")
        networks.load("mlp", tmp_path / "made", plan.constant_names)
        times_s = networks.time("mlp", [], repeats=3, warmup=1)
        calls = networks.time_calls("mlp", [], repeats=1)
        assert len(times_s) == 3 and sum(s for _, s in calls) < min(times_s)
        assert [symbol for symbol, _ in calls] == [plan.symbol(call) for call in plan.calls]
        (found,) = networks.run("mlp", [image["input"]])
        wanted = carry_out(plan, image, network.graph.constants)
        np.testing.assert_array_equal(found, wanted[plan.outputs[0]])
        for name in ("model.so", "weights.params"):
            kept = (tmp_path / "made" / name).read_bytes()
            (tmp_path / "made" / name).write_bytes(kept[: len(kept) // 2])
            with pytest.raises(ModelError, match="holds no network that was compiled for a sim"):
                networks.load("mlp", tmp_path / "made", [])
            (tmp_path / "made" / name).write_bytes(kept)


def test_a_network_is_optimized_profiled_and_predicted(session, tmp_path: Path) -> None:
    opened, heard = session
    result = opened.optimize("zoo:mlp", budget=40, out=tmp_path / "out").result
    assert result.max_rel_error < 1e-5 and result.measurements > 0
    assert result.speedup_vs_baseline >= 1.0
    again = opened.optimize("zoo:mlp", budget=40, out=tmp_path / "out").result
    assert (again.measurements, again.latency_s) == (0, pytest.approx(result.latency_s))
    profile = opened.profile("zoo:mlp", settings="shipped")
    assert profile.network_latency_s == pytest.approx(result.latency_s)
    forecast = opened.predict("zoo:mlp", settings="best")
    assert {row.source for row in forecast.operators} == {"exact"}
    notes = [event.message for event in heard if isinstance(event, Note)]
    assert sum("made-up device" in note for note in notes) == 1
