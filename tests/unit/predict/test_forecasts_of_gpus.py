"""What is said of a GPU on which nothing was measured: estimates from facts, marked as such."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import tilewright
from helpers.fakes.measuring import measured
from helpers.plugins.offer import offering
from helpers.plugins.simulated_gpu import POINTS, h100
from tilewright.core.errors import TargetError
from tilewright.core.events import Event, Note
from tilewright.cost.floors import datasheet_peaks
from tilewright.kernels.estimates import estimate_s
from tilewright.kernels.spaces import spaces
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict.forecasting import forecaster_of
from tilewright.store import open_store
from tilewright.testing.implementations import made_up_placement


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A simulated H100, of which no rows came along."""
    monkeypatch.setattr("tilewright.predict.modelling.shipped_data", tuple)
    with offering(tmp_path / "offered", POINTS):
        yield


def test_estimates_of_facts_are_marked_and_lie_above_the_roofline() -> None:
    placement, told = h100(), list[Event]()
    network = prepare("zoo:mlp", ModelOptions(), placement)
    with open_store("memory:") as store:
        found = forecaster_of(placement, store, told.append).network(network, "default")
    assert {each.source for each in found.operators} == {"facts"}
    for each, (key, task) in zip(found.operators, network.plan.tasks.items(), strict=True):
        candidate = network.plan.candidates[key]
        expected = estimate_s(task.workload, candidate, placement.target, placement.resources)
        assert each.latency_s == pytest.approx(expected)
        assert 0 < each.low_s <= each.latency_s < each.high_s
    assert found.network is not None and found.network.peak_memory_bytes > 0
    (note,) = [event.message for event in told if isinstance(event, Note)]
    assert note.startswith("3 tasks are of families that were never measured on this device class")


def test_only_a_gpu_has_peaks_by_its_datasheet() -> None:
    peaks = datasheet_peaks(h100().target)
    assert peaks is not None
    assert peaks.flop_per_s == pytest.approx(66.9e12, rel=1e-6)
    assert peaks.bytes_per_s == 3350e9
    assert datasheet_peaks(made_up_placement().target) is None


def test_predictors_of_a_gpu_are_fitted_and_judged_without_it(tmp_path: Path) -> None:
    """Rows came from the card's machine by `db merge`; only what is measured needs the card."""
    placement = h100()
    where = {"device_class": placement.device.class_key, "resources": placement.resources}
    with open_store(tmp_path / "t.db") as store:
        store.add_device(placement.device)
        for k in range(1, 11):
            operator = f"op:dense[k={64 * k},n=128]"
            (task,) = prepare_outline(operator, ModelOptions(), placement).tasks.values()
            (space, *_) = spaces(task.workload, task.forms, placement)
            store.add_workload(task.workload)
            for number in space.numbers[:5]:
                store.add(
                    [measured(task.workload, space.part.candidate(int(number)), 1e-6 * k, **where)]
                )
    with tilewright.Session(db=tmp_path / "t.db", target="cuda -model=H100") as session:
        (fitted,) = session.fit("dense").families
        assert (fitted.error, fitted.rows) == ("", 50)
        judged = session.evaluate(family="dense")
        assert {row.n for row in judged.rows if row.group == "all"} == {50}
        with pytest.raises(TargetError, match="cannot run on this machine"):
            session.collect("dense", budget=3)
