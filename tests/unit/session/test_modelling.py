"""Model files that are broken, of another version or of another device are refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_measuring import DEVICE
from predictor_rows import PEAKS, fitted, known_store, rows_of_convolutions

from tilewright.core.errors import ModelError, OutputError, UsageError
from tilewright.core.events import Event, Note, discard
from tilewright.predict import shipped
from tilewright.session.modelling import (
    Predictors,
    fit_all,
    load_model,
    models_folder,
    save_model,
)


def test_a_model_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "conv2d.json"
    save_model(fitted(), path)
    assert load_model(path, DEVICE.class_key).data_hash == fitted().data_hash
    assert [p.name for p in path.parent.iterdir()] == ["conv2d.json"], "nothing half-written"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_file_cut_short(tmp_path: Path, share: float) -> None:
    path = tmp_path / "conv2d.json"
    save_model(fitted(), path)
    text = path.read_text()
    path.write_text(text[: int(share * len(text))])
    with pytest.raises(ModelError, match="cut short") as caught:
        load_model(path, DEVICE.class_key)
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
        load_model(path, DEVICE.class_key)


def test_another_version_and_another_device(tmp_path: Path) -> None:
    path = tmp_path / "conv2d.json"
    save_model(fitted(), path)
    with pytest.raises(ModelError, match="device class"):
        load_model(path, "another")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(ModelError, match="format 99"):
        load_model(path, DEVICE.class_key)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        save_model(fitted(), tmp_path / "file" / "conv2d.json")


def test_a_cache_that_cannot_be_written_costs_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setattr(shipped, "DATA", tmp_path / "data")
    for function in (shipped._names, shipped._described):  # pyright: ignore[reportPrivateUsage]
        function.cache_clear()
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / f"{DEVICE.class_key}.parquet"
    shipped.write_rows(path, rows_of_convolutions(), DEVICE, PEAKS)
    heard: list[Event] = []
    try:
        with known_store(tmp_path / "t.db") as store:
            predictors = Predictors(
                device=DEVICE,
                store=store,
                folder=tmp_path / "m",
                cache=tmp_path / "cache",
                events=heard.append,
            )
            assert predictors.model("conv2d") is not None
    finally:
        for function in (shipped._names, shipped._described):  # pyright: ignore[reportPrivateUsage]
            function.cache_clear()
    notes = [event.message for event in heard if isinstance(event, Note)]
    assert any("not kept" in note for note in notes)


def test_models_lie_beside_their_database(tmp_path: Path) -> None:
    assert models_folder(tmp_path / "t.db") == tmp_path / "t.models"


def test_fit_tells_of_families_with_too_few_rows(tmp_path: Path) -> None:
    with known_store(tmp_path / "t.db") as store:
        found = fit_all(DEVICE, store, discard)
        by_name = {family.family: family for family in found.families}
        assert by_name["conv2d"].rows >= 40 and by_name["conv2d"].reach
        assert "teach nothing" in by_name["elementwise"].error
        with pytest.raises(UsageError, match="nothing was measured"):
            fit_all(DEVICE, store, discard, ["conv9d"])


def test_a_model_is_fitted_once(tmp_path: Path) -> None:
    with known_store(tmp_path / "t.db") as store:
        stages: list[object] = []
        predictors = Predictors(
            device=DEVICE,
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
