"""Energy is told where a meter told it of this class, and nowhere else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.levels import convolution
from helpers.fakes.measuring import PLACEMENT, measured
from helpers.records.predictor_rows import PEAKS, SMALL, known_store, rows_of_convolutions
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Event, Stage, discard
from tilewright.core.records import EnergyUse
from tilewright.insight.single_operators import default_kernel
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict.base import Features
from tilewright.predict.collected import Row, ShippedData, kernels_of, write_rows
from tilewright.predict.forecasting import IN_SEQUENCE, Forecaster
from tilewright.predict.kernel_features import kernel_table
from tilewright.predict.modelling import FORMAT, Predictors
from tilewright.predict.powers import (
    EVERY_FAMILY,
    FITTED,
    PowerPredictors,
    fit_metrics,
    fit_power,
    known_metrics,
    power_features,
    with_energy,
)
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


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.predict.powers.POWER_TREES", SMALL)


def test_what_a_meter_told_is_believed_and_the_rest_is_modelled(store: SqliteStore) -> None:
    rows = rows_of_convolutions()
    add_energies(store, rows[:-3])
    kernels = kernels_of((rows[0], rows[-1]))
    metered, modelled = PowerPredictors(predictors=predictors(store)).powers(kernels)
    assert metered is not None and modelled is not None
    assert metered.power_w == pytest.approx(power_w(rows[0]))
    assert math.log(metered.high_w / metered.power_w) == pytest.approx(0.11)
    assert math.log(metered.power_w / metered.low_w) == pytest.approx(0.11)
    assert modelled.power_w == pytest.approx(power_w(rows[-1]), rel=0.1)
    assert modelled.low_w < modelled.power_w < modelled.high_w
    assert (store.path.parent / "t.models" / str(PLACEMENT.key) / "power.json").is_file()
    again = PowerPredictors(predictors=predictors(store))
    assert again.powers(kernels) == [metered, modelled]


def test_a_family_of_which_none_was_metered_has_the_power_of_such_kernels(
    store: SqliteStore,
) -> None:
    """Convolutions taught it, and it stays within what they drew."""
    rows = rows_of_convolutions()
    add_energies(store, rows)
    kernel = default_kernel(RELU, ModelOptions(), PLACEMENT)
    (found,) = PowerPredictors(predictors=predictors(store)).powers([kernel])
    assert found is not None
    drawn = [power_w(row) for row in rows]
    assert 0.999 * min(drawn) <= found.power_w <= 1.001 * max(drawn)


def test_powers_that_came_along_need_no_meter(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(row, energy_j=power_w(row) * row.latency_s) for row in rows_of_convolutions()]
    path = tmp_path / "data" / "some.parquet"
    path.parent.mkdir()
    write_rows(path, rows[:-1], PLACEMENT, PEAKS)
    came = ShippedData(placement=PLACEMENT, peaks=PEAKS, path=path)
    monkeypatch.setattr("tilewright.predict.modelling.shipped_data", lambda: (came,))
    heard: list[Event] = []
    opened = replace(predictors(store), events=heard.append)
    metered, modelled = PowerPredictors(predictors=opened).powers(kernels_of((rows[0], rows[-1])))
    assert metered is not None and metered.power_w == pytest.approx(power_w(rows[0]))
    assert modelled is not None and modelled.power_w == pytest.approx(power_w(rows[-1]), rel=0.1)
    assert not (store.path.parent / "t.models").exists()
    (fitted,) = [event for event in heard if isinstance(event, Stage)]
    assert fitted.detail == "power: 59 kernels"
    heard.clear()
    again = PowerPredictors(predictors=opened).powers(kernels_of(rows[-1:]))
    assert again == [modelled] and heard == [], "the cache keeps it"


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
    assert found.power_low_w == pytest.approx(found.power_w / math.exp(0.11))
    assert found.power_high_w == pytest.approx(found.power_w * math.exp(0.11))
    assert found.energy_low_j is not None and found.energy_high_j is not None
    reach = math.hypot(0.11, 0.17)
    assert found.energy_low_j == pytest.approx(found.energy_j / math.exp(reach))
    assert found.energy_high_j == pytest.approx(found.energy_j * math.exp(reach))
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
        known_metrics(["memory"], FITTED)
    assert "planned" in (caught.value.hint or "")


@pytest.mark.parametrize("metric", ["energy", "power"])
def test_what_can_be_learnt_is_fitted(store: SqliteStore, metric: str) -> None:
    (missing,) = fit_metrics(PLACEMENT, store, discard, ["conv2d"], [metric]).families
    assert "no energy of any kernel was measured" in missing.error
    add_energies(store, rows_of_convolutions())
    found = fit_metrics(PLACEMENT, store, discard, ["conv2d"], [metric])
    (only,) = found.families
    assert (only.family, only.metric, only.error) == (EVERY_FAMILY, "power", "")
    assert only.rows == len(rows_of_convolutions())


def test_too_few_rows_teach_nothing(store: SqliteStore) -> None:
    add_energies(store, rows_of_convolutions()[:5])
    powers = PowerPredictors(predictors=predictors(store))
    assert powers.model() is None
    with pytest.raises(ModelError, match="are too few for a model of power"):
        powers.fit()


def test_one_power_for_all_and_energies_that_cannot_be(store: SqliteStore) -> None:
    rows = [replace(row, energy_j=30 * row.latency_s) for row in rows_of_convolutions()]
    wrong = [replace(rows[n], energy_j=value) for n, value in enumerate((0.0, -1.0, math.nan))]
    data = PowerPredictors(predictors=predictors(store)).training_set(
        with_energy([*rows[3:], *wrong])
    )
    model = fit_power(data)
    assert model.rows == len(rows) - 3
    assert model.predict(data.features).predicted == pytest.approx(30)


def test_what_is_learnt_is_work_per_second_and_no_estimate_of_time() -> None:
    table = kernel_table(kernels_of(rows_of_convolutions()[:4]), PLACEMENT, PEAKS)
    found = power_features(table)
    assert "schedule.estimate_over_roof" in table.names and found.scale.tolist() == [1.0] * 4
    assert "schedule.estimate_over_roof" not in found.names

    def column(features: Features, name: str) -> Any:
        return features.aligned([name])[:, 0]

    log_s = column(table, "schedule.estimate_s")
    per_s = column(found, "schedule.flop_per_s")
    assert per_s == pytest.approx(column(table, "op.flop") - log_s)


def test_a_model_file_that_is_broken_or_of_another_kind(store: SqliteStore) -> None:
    add_energies(store, rows_of_convolutions())
    PowerPredictors(predictors=predictors(store)).fit()
    path = store.path.parent / "t.models" / str(PLACEMENT.key) / "power.json"
    assert PowerPredictors(predictors=predictors(store)).model() is not None
    text = path.read_text()
    for broken, says in (
        (text[: len(text) // 2], "cut short"),
        (json.dumps({"format": FORMAT, "model": {"family": "conv2d"}}), "no model"),
        (text.replace(f'"device_class": "{PLACEMENT.key}"', '"device_class": "x"'), "class x"),
    ):
        path.write_text(broken)
        with pytest.raises(ModelError, match=says):
            PowerPredictors(predictors=predictors(store)).model()


def test_without_any_energy_there_is_none(store: SqliteStore) -> None:
    powers = PowerPredictors(predictors=predictors(store))
    row = rows_of_convolutions()[0]
    assert powers.powers([(convolution(), row.candidate)]) == [None]
