"""Model files that are broken, of another version or of another device are refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT, measured
from helpers.fakes.placements import altered
from helpers.records.predictor_rows import PEAKS, fitted, known_store, rows_of_convolutions
from tilewright.core.errors import ModelError, OutputError, UsageError
from tilewright.core.events import Event, Note, discard
from tilewright.predict import collected
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.modelling import (
    Predictors,
    load_model,
    predictors_of,
    save_model,
)
from tilewright.predict.powers import fit_metrics
from tilewright.store import open_store


def test_a_model_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "conv2d.json"
    save_model(fitted(), path)
    assert load_model(path, PLACEMENT).data_hash == fitted().data_hash
    assert [p.name for p in path.parent.iterdir()] == ["conv2d.json"], "nothing half-written"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_file_cut_short(tmp_path: Path, share: float) -> None:
    path = tmp_path / "conv2d.json"
    save_model(fitted(), path)
    text = path.read_text()
    path.write_text(text[: int(share * len(text))])
    with pytest.raises(ModelError, match="cut short") as caught:
        load_model(path, PLACEMENT)
    assert "tilewright fit" in (caught.value.hint or "")


@pytest.mark.parametrize("trees", [{"ubjson": 3}, {"ubjson": "AAAA", "sha256": "0"}])
def test_a_file_whose_trees_are_not_those_that_were_written(
    tmp_path: Path, trees: dict[str, object]
) -> None:
    path = tmp_path / "conv2d.json"
    save_model(fitted(), path)
    found = json.loads(path.read_text())
    found["model"]["members"][0] |= trees
    path.write_text(json.dumps(found))
    with pytest.raises(ModelError, match="no model"):
        load_model(path, PLACEMENT)


def test_another_version_and_another_device(tmp_path: Path) -> None:
    path = tmp_path / "conv2d.json"
    save_model(fitted(), path)
    with pytest.raises(ModelError, match="device class"):
        load_model(path, altered(PLACEMENT, class_key="another"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(ModelError, match="format 99"):
        load_model(path, PLACEMENT)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        save_model(fitted(), tmp_path / "file" / "conv2d.json")


@pytest.fixture
def came_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The rows of convolutions came with the package, of the fake device."""
    monkeypatch.setattr(collected, "DATA", tmp_path / "data")
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / f"{PLACEMENT.key}.parquet"
    collected.write_rows(path, rows_of_convolutions(), PLACEMENT, PEAKS)
    collected.shipped_data.cache_clear()
    yield
    collected.shipped_data.cache_clear()


@pytest.mark.usefixtures("came_along")
def test_a_cache_that_cannot_be_written_costs_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    heard: list[Event] = []
    with known_store(tmp_path / "t.db") as store:
        predictors = Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "m",
            cache=tmp_path / "cache",
            events=heard.append,
        )
        assert predictors.model("conv2d") is not None
    notes = [event.message for event in heard if isinstance(event, Note)]
    assert any("was not saved" in note for note in notes)


@pytest.mark.usefixtures("came_along")
@pytest.mark.parametrize("kernels", [0, 9, 20])
def test_a_new_class_begins_at_the_nearest_ones_model(tmp_path: Path, kernels: int) -> None:
    new = altered(PLACEMENT, class_key="new")
    with open_store(tmp_path / "t.db") as store:
        for name, value in asdict(PEAKS).items():
            store.add_peak(new.key, name, value)
        rows = rows_of_convolutions()[::3][:kernels]
        store.add_workloads([*{row.workload for row in rows}])
        store.add(
            measured(row.workload, row.candidate, 3 * row.latency_s, device_class="new")
            for row in rows
        )
        predictors = Predictors(
            placement=new, store=store, folder=tmp_path / "m", cache=tmp_path / "c", events=discard
        )
        model = predictors.fit("conv2d")
        asked = rows_of_convolutions()
        table = predictors.features([(row.workload, row.candidate) for row in asked], model)
        said = model.predict(table)
    slower = np.median(said.predicted / [row.latency_s for row in asked])
    if kernels < 10:
        assert (model.base, model.origin) == (None, str(PLACEMENT.key))
        assert slower == pytest.approx(1, rel=0.1)
    else:
        assert model.base is not None and model.origin == str(new.key)
        assert slower == pytest.approx(3, rel=0.2)


@pytest.mark.usefixtures("came_along")
def test_all_that_learn_from_the_same_rows_have_one_model(tmp_path: Path) -> None:
    stages: list[Event] = []
    found: dict[str, FamilyModel] = {}
    for place in (altered(PLACEMENT, threads=4), altered(PLACEMENT, class_key="new"), PLACEMENT):
        with open_store(tmp_path / "t.db") as store:
            predictors = Predictors(
                placement=place,
                store=store,
                folder=tmp_path / "m",
                cache=tmp_path / "c",
                events=stages.append,
            )
            model = predictors.model("conv2d", fitting=not stages)
            assert model is not None and model.origin == str(PLACEMENT.key)
            found[model.device_class] = model
    assert len(stages) == 1, "the first of them learnt it"
    assert len(found) == 3, "each answers for its own class and resources"
    assert len({model.data_hash for model in found.values()}) == 1


@pytest.mark.usefixtures("came_along")
def test_other_facts_beside_the_same_rows_make_another_model(tmp_path: Path) -> None:
    (before,) = collected.shipped_data()
    peaks = replace(before.peaks, flop_per_s=2 * before.peaks.flop_per_s)
    wide = replace(before.placement, resources=altered(PLACEMENT, threads=4).resources)
    others = (replace(before, peaks=peaks), replace(before, placement=wide))
    assert len({each.identity for each in (before, *others)}) == 3


@pytest.mark.usefixtures("came_along")
@pytest.mark.parametrize(("kernels", "pace"), [(0, 1.0), (19, 1.0), (30, 0.7)])
def test_what_came_along_goes_at_the_pace_of_this_machine(
    tmp_path: Path, kernels: int, pace: float
) -> None:
    rows = rows_of_convolutions()
    own, others = rows[::2][:kernels], rows[1::2]
    with open_store(tmp_path / "t.db") as store:
        for name, value in asdict(PEAKS).items():
            store.add_peak(PLACEMENT.key, name, value)
        store.add_workloads([*{row.workload for row in own}])
        store.add(measured(row.workload, row.candidate, 0.7 * row.latency_s) for row in own)
        predictors = Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "m",
            cache=tmp_path / "c",
            events=discard,
        )
        model = predictors.model("conv2d")
        assert model is not None and model.slowdown == pytest.approx(pace, rel=0.1)
        again = replace(model, slowdown=1.0)
        table = predictors.features([(row.workload, row.candidate) for row in others], model)
        paced, bare = model.predict(table), again.predict(table)
        np.testing.assert_allclose(paced.predicted, model.slowdown * bare.predicted)
        np.testing.assert_array_equal(paced.reach, bare.reach)
        for row in others:
            known = predictors.measured("conv2d").estimate(row.workload, row.candidate)
            assert known is not None and known.latency_s == pytest.approx(
                model.slowdown * row.latency_s
            )
        taught_s = predictors.training_set("conv2d").target
        fitted_here = predictors.fit("conv2d")
    assert fitted_here.slowdown == 1.0
    told_s = [model.slowdown * row.latency_s for row in rows] + [0.7 * row.latency_s for row in own]
    np.testing.assert_allclose(np.sort(taught_s), np.sort(told_s))


def test_models_lie_beside_their_database(tmp_path: Path) -> None:
    with known_store(tmp_path / "t.db") as store:
        assert predictors_of(PLACEMENT, store, discard).folder == tmp_path / "t.models"


def test_fit_tells_of_families_with_too_few_rows(tmp_path: Path) -> None:
    with known_store(tmp_path / "t.db") as store:
        found = fit_metrics(PLACEMENT, store, discard, metrics=["latency"])
        by_name = {family.family: family for family in found.families}
        assert by_name["conv2d"].rows >= 40 and by_name["conv2d"].reach
        assert "are too few for a model of" in by_name["elementwise"].error
        with pytest.raises(UsageError, match="no kernels of a family"):
            fit_metrics(PLACEMENT, store, discard, ["conv9d"])


def test_a_model_is_fitted_once(tmp_path: Path) -> None:
    with known_store(tmp_path / "t.db") as store:
        stages: list[object] = []
        predictors = Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "m",
            cache=tmp_path / "cache",
            events=stages.append,
        )
        model = predictors.model("conv2d")
        assert model is not None and predictors.model("conv2d") is model
        again = replace(predictors, _loaded={})
        assert again.model("conv2d") is not None
        assert len(stages) == 1
        assert predictors.model("softmax") is None
        assert predictors.model("elementwise") is None
        assert len(stages) == 1, "what teaches nothing is not said to be fitted"
