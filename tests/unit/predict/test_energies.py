"""Energy is told where a meter told it of this class, and nowhere else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.fakes.levels import convolution
from helpers.fakes.measuring import PLACEMENT, measured
from helpers.records.predictor_rows import PEAKS, known_store, rows_of_convolutions
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import discard
from tilewright.core.records import EnergyUse
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict.collected import Row
from tilewright.predict.energies import (
    EnergyPredictors,
    fit_energies,
    fit_metrics,
    known_metrics,
)
from tilewright.predict.forecasting import IN_SEQUENCE, Forecaster
from tilewright.predict.modelling import FORMAT, Predictors, save_model
from tilewright.store.database import SqliteStore

RELU = "op:relu[shape=1x8x8x8]"


def power_w(row: Row) -> float:
    """Kernels draw from 20 W on; those that take longer draw more."""
    return 20.0 + 5.0 * math.log10(row.latency_s / 1e-6)


def add_energies(store: SqliteStore, rows: Sequence[Row]) -> None:
    store.add(
        replace(
            measured(row.workload, row.candidate, row.latency_s),
            energy=EnergyUse(
                method="made up", energy_j=power_w(row) * row.latency_s, power_w=power_w(row)
            ),
        )
        for row in rows
    )


def outlined(texts: Sequence[str]) -> list[tuple[str, PreparedNetwork]]:
    return [(text, prepare_outline(text, ModelOptions(), PLACEMENT)) for text in texts]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with known_store(tmp_path / "t.db") as opened:
        yield opened


def predictors(store: SqliteStore) -> Predictors:
    folder = store.path.parent
    return Predictors(
        placement=PLACEMENT,
        store=store,
        folder=folder / "t.models",
        cache=folder / "c",
        events=discard,
    )


def forecaster(store: SqliteStore) -> Forecaster:
    return Forecaster(predictors=predictors(store))


def test_what_a_meter_told_is_believed_and_the_rest_is_modelled(store: SqliteStore) -> None:
    rows = rows_of_convolutions()
    add_energies(store, rows[:-3])
    energies = EnergyPredictors(predictors=predictors(store))
    known, unknown = rows[0], rows[-1]
    found = energies.energies_j([(row.workload, row.candidate) for row in (known, unknown)])
    assert found[0] == pytest.approx(power_w(known) * known.latency_s)
    assert found[1] == pytest.approx(power_w(unknown) * unknown.latency_s, rel=0.5)
    assert (store.path.parent / "t.models" / str(PLACEMENT.key) / "conv2d.energy.json").is_file()
    again = EnergyPredictors(predictors=predictors(store))
    assert again.energies_j([(unknown.workload, unknown.candidate)]) == found[1:]


def test_a_networks_energy_and_power(store: SqliteStore) -> None:
    network = prepare(RELU, ModelOptions(), PLACEMENT)
    chosen = network.plan.candidates
    rows = [
        Row(workload=task.workload, candidate=chosen[key], latency_s=2e-5)
        for key, task in network.tasks.items()
    ]
    store.add_workloads([row.workload for row in rows])
    add_energies(store, rows)
    result = forecaster(store).network(prepare(RELU, ModelOptions(), PLACEMENT), "default")
    found = result.network
    assert found is not None and found.energy_j is not None and found.latency_s is not None
    calls = sum(task.count for task in network.tasks.values())
    energy_j = calls * 2e-5 * power_w(rows[0])
    assert found.energy_j == pytest.approx(IN_SEQUENCE * energy_j)
    assert found.power_w == pytest.approx(power_w(rows[0]))
    assert result.energy_reason == ""


def test_an_operators_energy_and_power(store: SqliteStore) -> None:
    text = "op:conv2d[c=16,h=8,k=3,pad=1,out=16]"
    add_energies(store, rows_of_convolutions())
    (found,) = forecaster(store).operators(outlined([text]), "default").operators
    assert found.energy_j is not None and found.energy_j > 0
    assert found.power_w == pytest.approx(found.energy_j / found.latency_s)
    (power,) = forecaster(store).operators(outlined([text]), "default", ["power"]).operators
    assert (power.energy_j, power.power_w) == (None, found.power_w)


def test_without_a_meter_there_is_the_reason(store: SqliteStore) -> None:
    result = forecaster(store).network(prepare(RELU, ModelOptions(), PLACEMENT), "default")
    assert result.network is not None
    assert (result.network.energy_j, result.network.power_w) == (None, None)
    assert "elementwise" in result.energy_reason and "--power" in result.energy_reason


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        (["memory"], {"peak_memory_bytes"}),
        (["latency"], {"latency_s", "latency_low_s", "latency_high_s"}),
        (["power,memory"], {"peak_memory_bytes"}),
    ],
)
def test_only_what_is_asked_for(store: SqliteStore, asked: list[str], there: set[str]) -> None:
    result = forecaster(store).network(prepare(RELU, ModelOptions(), PLACEMENT), "default", asked)
    network = result.network
    assert network is not None
    fields = network.__dataclass_fields__
    assert {name for name in fields if getattr(network, name) is not None} == there
    assert bool(result.energy_reason) == ("power,memory" in asked)
    assert bool(result.operators) == ("latency" in asked)


def test_metrics_by_name() -> None:
    assert known_metrics([]) == ("latency", "power", "energy", "memory")
    assert known_metrics(["memory, latency", "memory"]) == ("memory", "latency")
    with pytest.raises(UsageError, match="'speed'") as caught:
        known_metrics(["latency,speed"])
    assert "energy, latency, memory, power" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="'memory'") as caught:
        known_metrics(["memory"], ("latency", "energy"))
    assert "planned" in (caught.value.hint or "")


def test_what_can_be_learnt_is_fitted(store: SqliteStore) -> None:
    add_energies(store, rows_of_convolutions())
    found = fit_metrics(PLACEMENT, store, discard, ["conv2d"], ["energy"])
    (only,) = found.families
    assert (only.family, only.metric, only.error) == ("conv2d", "energy", "")
    assert only.rows == len(rows_of_convolutions())
    (missing,) = fit_metrics(PLACEMENT, store, discard, ["elementwise"], ["energy"]).families
    assert "no energy of elementwise was measured" in missing.error


def test_too_few_rows_teach_nothing(store: SqliteStore) -> None:
    add_energies(store, rows_of_convolutions()[:5])
    energies = EnergyPredictors(predictors=predictors(store))
    assert energies.model("conv2d") is None
    with pytest.raises(ModelError, match="are too few for a model of"):
        energies.fit("conv2d")


def test_one_energy_for_all_and_energies_that_cannot_be() -> None:
    rows = [replace(row, energy_j=1e-3) for row in rows_of_convolutions()]
    wrong = [replace(rows[n], energy_j=value) for n, value in enumerate((0.0, -1.0, math.nan))]
    model = fit_energies([*rows[3:], *wrong], "conv2d", PLACEMENT, PEAKS)
    assert model.rows == len(rows) - 3
    assert model.power_w > 0


def test_a_model_file_that_is_broken_or_of_another_kind(store: SqliteStore) -> None:
    rows = [replace(row, energy_j=power_w(row) * row.latency_s) for row in rows_of_convolutions()]
    model = fit_energies(rows, "conv2d", PLACEMENT, PEAKS)
    path = store.path.parent / "t.models" / str(PLACEMENT.key) / "conv2d.energy.json"
    save_model(model, path)
    assert EnergyPredictors(predictors=predictors(store)).model("conv2d") is not None
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(ModelError, match="cut short"):
        EnergyPredictors(predictors=predictors(store)).model("conv2d")
    path.write_text(json.dumps({"format": FORMAT, "model": {"family": "conv2d"}}))
    with pytest.raises(ModelError, match="no model"):
        EnergyPredictors(predictors=predictors(store)).model("conv2d")
    path.write_text(text.replace(f'"device_class": "{PLACEMENT.key}"', '"device_class": "x"'))
    with pytest.raises(ModelError, match="device class x"):
        EnergyPredictors(predictors=predictors(store)).model("conv2d")


def test_a_kernel_of_a_family_without_energy_has_none(store: SqliteStore) -> None:
    energies = EnergyPredictors(predictors=predictors(store))
    row = rows_of_convolutions()[0]
    assert energies.energies_j([(convolution(), row.candidate)]) == [None]
