"""Predictors of kernels judged on configurations, networks and devices that they did not see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from helpers.fakes.levels import convolution
from helpers.fakes.measuring import PLACEMENT, measured
from helpers.fakes.placements import altered
from helpers.records.predictor_rows import PEAKS, SMALL, known_store, rows_of_convolutions
from network_tasks import keys_of
from tilewright.collect.collector import PROBE
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Event, Note, discard
from tilewright.core.records import Candidate, Run
from tilewright.graph.workload import Workload
from tilewright.insight import evaluating
from tilewright.insight.evaluating import evaluate_kernels, members_of, operators_of, zoo_tasks
from tilewright.insight.single_operators import default_kernel
from tilewright.models import ModelOptions
from tilewright.models.zoo import names
from tilewright.predict import evaluation
from tilewright.predict.evaluation import EvaluateRequest, Split
from tilewright.predict.family_models import TrainingSet, fit_kernels
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.store.database import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with known_store(tmp_path / "t.db") as store:
        yield store


@pytest.fixture
def predictors(store: SqliteStore) -> Predictors:
    return predictors_of(PLACEMENT, store, discard)


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> dict[str, frozenset[str]]:
    """Two networks that share a kernel; one kernel of ours is of neither."""
    keys = list(dict.fromkeys(row.workload.key for row in rows_of_convolutions()))
    found = {"zoo:a": frozenset(keys[:3]), "zoo:b": frozenset(keys[2:5])}
    monkeypatch.setattr(evaluating, "zoo_tasks", lambda: found)
    return found


def question(split: Split, family: str = "conv2d") -> EvaluateRequest:
    return EvaluateRequest(family=family, split=split, folds=3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of few trees."""
    monkeypatch.setattr("tilewright.predict.family_models.DEFAULT_TREES", SMALL)


def test_by_configuration(predictors: Predictors) -> None:
    found = evaluate_kernels(predictors, question("configuration"))
    groups = {row.group: row for row in found.result.rows}
    assert {"all", "conv2d_direct", "operator facts alone"} <= set(groups)
    assert groups["all"].n == groups["conv2d_direct"].n == len(rows_of_convolutions())
    (judged,) = found.held_out
    assert sorted(judged.measured) == sorted(row.latency_s for row in rows_of_convolutions())
    (card,) = found.result.cards
    assert (card.rows, card.configurations) == (len(rows_of_convolutions()), 6)
    assert (card.devices, card.data_hash) == (
        (str(PLACEMENT.key),),
        predictors.training_set("conv2d").data_hash,
    )
    assert any("4-byte elements" in limit for limit in card.limits)


def test_a_card_has_the_days_of_the_measurements(
    predictors: Predictors, store: SqliteStore
) -> None:
    assert store.measured_days(replace(PLACEMENT.key, device_class="nobody's")) is None
    row = rows_of_convolutions()[0]
    store.add([measured(row.workload, row.candidate, row.latency_s, created_at=1893542400.0)])
    (card,) = evaluate_kernels(predictors, question("configuration")).result.cards
    assert (card.measured_from, card.measured_until) == ("1970-01-01", "2030-01-02")


def test_a_network_leaves_with_its_operators_whoever_has_them(
    predictors: Predictors,
    store: SqliteStore,
    networks: dict[str, frozenset[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fused = convolution("relu", channels=16, filters=16)
    row = rows_of_convolutions()[0]
    assert row.workload.key in networks["zoo:a"]
    assert operators_of([row, replace(row, workload=fused)]).tolist() == [0, 0]
    store.add_workload(fused)
    store.add([measured(fused, row.candidate, 2e-5)])
    learnt: list[tuple[int, set[float]]] = []

    def fit(data: TrainingSet, **named: object) -> object:
        learnt.append((len(data), set(data.target.tolist())))
        return fit_kernels(data, trees=SMALL)

    monkeypatch.setattr(evaluating, "fit_kernels", fit)
    monkeypatch.setattr(evaluation, "folds_of", lambda groups, folds, seed: groups % 2)
    monkeypatch.setattr("tilewright.predict.family_models.LEAST_ROWS", 10)
    found = evaluate_kernels(predictors, question("network"))
    rows = {row.group: row.n for row in found.result.rows}
    assert rows == {"all": 60, "zoo:a": 30, "zoo:b": 30}
    assert [count for count, _ in learnt] == [30, 31], "the fused one is learnt from without a only"
    assert 2e-5 not in learnt[0][1] and 2e-5 in learnt[1][1]


def test_networks_are_known_by_the_zoo_and_by_what_was_measured_for_them(
    predictors: Predictors, store: SqliteStore, networks: dict[str, frozenset[str]]
) -> None:
    rows = rows_of_convolutions()
    of_run(store, "mine.onnx", rows[0].workload, rows[0].candidate)
    of_run(store, "conv2d, dense", rows[-1].workload, rows[-1].candidate)
    of_run(store, "conv2d", rows[-1].workload, rows[-1].candidate)
    of_run(store, "op:conv2d[c=3]", rows[-1].workload, rows[-1].candidate)
    probe, candidate = default_kernel(PROBE, ModelOptions(), PLACEMENT)
    of_run(store, "mine.onnx", probe, candidate)
    members = members_of([*rows, replace(rows[0], workload=probe)], predictors)
    assert set(members) == {"zoo:a", "zoo:b", "mine.onnx"}
    assert members["mine.onnx"].tolist() == list(range(10))
    assert set(members["zoo:a"]) & set(members["zoo:b"]) == set(range(20, 30))


def of_run(store: SqliteStore, model: str, workload: Workload, candidate: Candidate) -> None:
    run = store.begin_run(
        Run(
            command="collect",
            model=model,
            network_key="n",
            device_class=PLACEMENT.device.class_key,
            resources=PLACEMENT.resources,
            seed=0,
            state="done",
        )
    )
    store.add_workload(workload)
    store.add([measured(workload, candidate, 1e-3, run_id=run.id)])


def test_no_network_is_known(predictors: Predictors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "zoo_tasks", dict[str, frozenset[str]])
    with pytest.raises(ModelError, match="belongs to a network") as caught:
        evaluate_kernels(predictors, question("network"))
    assert "collect zoo:" in (caught.value.hint or "")


def test_a_device_class_is_predicted_by_the_nearest_other(
    predictors: Predictors, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "shipped_data", tuple)
    with pytest.raises(UsageError, match="two device classes") as caught:
        evaluate_kernels(predictors, question("device"))
    assert str(PLACEMENT.key) in caught.value.message
    assert "collect --op conv2d --threads 1" in (caught.value.hint or "")
    single = altered(PLACEMENT, class_key="single", threads=1)
    store.add_device(single.device)
    for placement, factor in ((PLACEMENT, 1.0), (single, 2.0)):
        for name, value in asdict(PEAKS).items():
            store.add_peak(placement.key, name, value / factor)
    where = {"device_class": "single", "resources": single.resources}
    slower = [
        measured(row.workload, row.candidate, 2 * row.latency_s, **where)
        for row in rows_of_convolutions()
    ]
    store.add(slower)
    found = evaluate_kernels(predictors_of(PLACEMENT, store, discard), question("device"))
    rows = {row.group: row for row in found.result.rows}
    count = len(rows_of_convolutions())
    assert {name: row.n for name, row in rows.items()} == {
        str(PLACEMENT.key): count,
        "single-1t": count,
        "all": 2 * count,
    }
    (judged,) = found.held_out
    mine = judged.groups == "single-1t"
    model = fit_kernels(predictors.training_set("conv2d"), trees=SMALL)
    assert judged.reach[mine].min() == pytest.approx(2 * model.reach), "learnt elsewhere"
    (card,) = found.result.cards
    assert (card.split, card.family) == ("device", "conv2d")
    assert sorted(card.devices) == sorted((str(PLACEMENT.key), "single-1t"))
    assert (card.rows, card.configurations) == (2 * count, 12)


def test_all_families_with_a_note_on_those_too_little_is_known_of(store: SqliteStore) -> None:
    heard: list[Event] = []
    predictors = predictors_of(PLACEMENT, store, heard.append)
    found = evaluate_kernels(predictors, question("configuration", "all"))
    assert {row.family for row in found.result.rows} == {"conv2d"}
    assert found.result.family == "all"
    (note,) = found.result.notes
    assert note.startswith("elementwise: ") and "are too few for a model of" in note
    assert [event.message for event in heard if isinstance(event, Note)] == [note]


def test_what_cannot_be_asked(predictors: Predictors) -> None:
    with pytest.raises(UsageError, match="no kernels of a family 'conv9d'") as caught:
        evaluate_kernels(predictors, question("configuration", "conv9d"))
    assert "conv2d" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="no split 'row'"):
        question("row")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="--folds"):
        EvaluateRequest(folds=1)


def test_the_zoo_is_as_the_file_says() -> None:
    assert set(zoo_tasks()) == {f"zoo:{name}" for name in names()}
    for name in ("mlp", "squeezenet1_1"):
        again = "python benchmarks/network_tasks.py writes the file anew"
        assert zoo_tasks()[f"zoo:{name}"] == keys_of(name), again
