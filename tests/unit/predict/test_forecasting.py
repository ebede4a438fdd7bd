"""A prediction says where it comes from, and never passes a guess off as more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helpers.fakes.levels import convolution, relu
from helpers.fakes.measuring import PLACEMENT
from helpers.records.predictor_rows import known_store, rows_of_convolutions
from tilewright.core.events import Event, Note
from tilewright.cost.floors import floor_s
from tilewright.kernels.estimates import work_of
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict.forecasting import Forecaster
from tilewright.predict.modelling import Predictors


def outlined(texts: Sequence[str]) -> list[tuple[str, PreparedNetwork]]:
    return [(text, prepare_outline(text, ModelOptions(), PLACEMENT)) for text in texts]


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def forecaster(tmp_path: Path, heard: list[Event]) -> Iterator[Forecaster]:
    with known_store(tmp_path / "t.db") as store:
        predictors = Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "models",
            cache=tmp_path / "cache",
            events=heard.append,
        )
        yield Forecaster(predictors=predictors)


def test_a_measured_kernel_is_exact(forecaster: Forecaster) -> None:
    row = rows_of_convolutions()[3]
    (found,) = forecaster.kernels([(row.workload, row.candidate)])
    assert found.source == "exact"
    assert found.latency_s == pytest.approx(row.latency_s)
    assert found.low_s < found.latency_s < found.high_s


def test_a_kernel_between_two_measured_ones_is_interpolated(forecaster: Forecaster) -> None:
    row = rows_of_convolutions()[0]
    between = convolution(channels=16, filters=17)
    outside = convolution(channels=16, filters=4000)
    found = forecaster.kernels([(between, row.candidate), (outside, row.candidate)])
    assert found[0].source in ("interpolated", "model")
    assert found[1].source == "model" and found[1].outside


def test_a_family_never_seen_is_the_roofline_and_says_so(
    forecaster: Forecaster, heard: list[Event]
) -> None:
    found = forecaster.network(
        prepare("op:softmax[shape=64x128]", ModelOptions(), PLACEMENT), "default"
    )
    (operator,) = found.operators
    assert (operator.family, operator.source) == ("softmax", "roofline")
    assert operator.latency_s == operator.low_s < operator.high_s
    notes = [event.message for event in heard if isinstance(event, Note)]
    assert any("roofline" in note for note in notes)


def test_a_network_has_every_figure_of_the_contract(forecaster: Forecaster) -> None:
    found = forecaster.network(prepare("zoo:mlp", ModelOptions(), PLACEMENT), "default")
    network = found.network
    assert 0 < network.latency_low_s <= network.latency_s < network.latency_high_s
    assert network.power_w is None and network.energy_j is None
    assert network.peak_memory_bytes > 0
    total_s = sum(operator.latency_s * operator.count for operator in found.operators)
    assert network.latency_s >= total_s


def test_single_operators(forecaster: Forecaster, heard: list[Event]) -> None:
    texts = ["op:conv2d[c=16,h=8,k=3,pad=1,out=32]", "op:softmax[shape=64x128]"]
    found = forecaster.operators(outlined(texts), "default", [])
    assert found.network is None
    assert [operator.name for operator in found.operators] == texts
    assert [operator.family for operator in found.operators] == ["conv2d", "softmax"]
    assert found.operators[1].source == "roofline"
    assert found.energy_reason and all(operator.energy_j is None for operator in found.operators)
    values = 64 * 128 * 4
    peaks = [operator.peak_memory_bytes for operator in found.operators]
    assert all(peak is not None and peak > 0 for peak in peaks) and peaks[1] >= 2 * values
    alone = forecaster.operators(outlined(texts), "default", ["latency"])
    assert [operator.peak_memory_bytes for operator in alone.operators] == [None, None]
    assert alone.energy_reason == ""
    forecaster.operators(outlined(texts), "default", ["energy"])
    notes = [event.message for event in heard if isinstance(event, Note)]
    assert sum("energies are unknown" in note and "--power" in note for note in notes) == 1


def test_no_time_is_below_the_roofline_of_a_roofline_answer(forecaster: Forecaster) -> None:
    workload = relu()
    candidate = rows_of_convolutions()[0].candidate
    (found,) = forecaster.kernels([(workload, candidate)])
    assert found.source == "roofline"
    work = work_of(workload, candidate.implementation, PLACEMENT.target)
    assert found.latency_s == floor_s(work, forecaster.predictors.peaks)
