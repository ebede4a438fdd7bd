"""A float32 network put on codes of eight bits, through the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from helpers.commands.command_line import call, reference, succeed
from helpers.networks.quantizable import images, saved, written
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.deploy import optimizing
from tilewright.deploy.racing import Race
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.models import ModelOptions
from tilewright.models.shape_grid import ShapeGrid

X = images(8)
CODES = ModelOptions(precision="int8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, inputs for it, and what one command made of both."""
    folder = tmp_path_factory.mktemp("calibrated")
    model, given = saved(folder), written(folder, x=X)
    options = ModelOptions(precision="int8", calibration=given)
    answer = shipped_on_codes(model, options=options, max_error="40dB", out=folder / "out")
    (folder / "answer.json").write_text(json.dumps(answer))
    return folder


def shipped_on_codes(model: Path | str, **wishes: Any) -> dict[str, Any]:
    """What `optimize` answers where of two networks that with codes counts as the faster one."""

    def with_codes(races: Sequence[Race]) -> Race:
        return next(race for race in races if race.network.model.quantized is not None)

    with pytest.MonkeyPatch.context() as patch, tilewright.open(db="memory:") as session:
        patch.setattr(optimizing, "fastest_of", with_codes)
        return asdict(session.optimize(model, **{"budget": 0} | wishes).result)


def largest(found: Any, expected: Any) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def test_it_is_as_exact_as_the_same_file_in_onnx_runtime(made: Path) -> None:
    network = tilewright.load(made / "out")
    off: list[float] = []
    for image in X[1::2]:
        single = reference(made / "images.onnx", {"x": image[None]})["y"]
        codes = reference(made / "out" / "quantized.onnx", {"x": image[None]})["y"]
        ours = np.asarray(network(image[None]))
        assert largest(ours, codes) < 0.02
        off.append(largest(ours, single))
    data = json.loads((made / "answer.json").read_text())
    assert data["max_rel_error"] == pytest.approx(max(off), rel=0.01) and min(off) > 1e-4
    assert 40.0 <= data["sqnr_db"] < 60.0


def test_what_is_not_on_codes_is_told(made: Path) -> None:
    mixture = json.loads((made / "answer.json").read_text())["mixture"]
    assert not mixture["kept"] and mixture["calibrated"] and mixture["noise_s"] > 0.0
    assert mixture["measured_sqnr_db"] >= 40.0 and mixture["predicted_sqnr_db"] > 38.0
    types = {layer["multiplied"] for layer in mixture["layers"]} - {""}
    assert {"int8"} < types <= {"int8", "bfloat16", "float32"}
    assert sum(layer["noise_share"] for layer in mixture["layers"]) == pytest.approx(1.0)
    assert sum(point["chosen"] for point in mixture["front"]) == 1
    assert "Precision by layer" in call(made, "show", made / "out").out


def test_an_artifact_is_opened_with_its_own_codes(made: Path, tmp_path: Path) -> None:
    (made / "inputs.npz").rename(tmp_path / "away.npz")
    compared = succeed(made, "compare", made / "out", "--peers", "onnxruntime")
    rows = {row["precision"]: row for row in compared["rows"]}
    assert set(rows) == {"fp32", "int8"} and rows["fp32"]["own_precision"] == "int8"
    assert rows["fp32"]["peer_rel_error"] < 1e-5 < rows["int8"]["peer_rel_error"] < 0.1
    assert rows["fp32"]["peer_error"] == "less" and rows["int8"]["peer_error"]
    assert compared["geomean_speedup"] == pytest.approx(rows["int8"]["speedup"])
    assert succeed(made, "show", made / "out")["source"]["precision"] == "int8"


def test_an_error_that_codes_cannot_keep_is_a_verdict(made: Path, tmp_path: Path) -> None:
    with (
        tilewright.open(db="memory:") as session,
        pytest.raises(NegativeVerdict, match="no choice of operators on codes") as told,
    ):
        session.optimize(
            made / "images.onnx", budget=0, out=tmp_path / "none", options=CODES, max_error="90dB"
        )
    assert "less than the 90 dB" in told.value.message and not (tmp_path / "none").exists()


def test_what_cannot_be_is_told_before_any_work(made: Path, tmp_path: Path) -> None:
    wrong = call(made, "optimize", made / "images.onnx", "--precision", "int8", "--calibration",
                 written(tmp_path, z=X))  # fmt: skip
    assert wrong.code == 2 and "'z', which is no input of the network" in wrong.err
    again = call(made, "profile", made / "out" / "quantized.onnx", "--precision", "int8")
    assert again.code == 4 and "on codes already" in again.err
    with tilewright.open(db="memory:") as session, pytest.raises(UsageError, match="one shape"):
        session.optimize_shapes(
            made / "images.onnx", ShapeGrid(batch=(1, 2)), budget=0, out=tmp_path, options=CODES
        )


@pytest.mark.on_request
@pytest.mark.skipif(not half_lanes(local_placement().target), reason="no bfloat16 here")
def test_a_type_for_each_tensor_may_be_codes(made: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=X)
    options = ModelOptions(precision="auto", calibration=tmp_path / "inputs.npz", keep="float32:e")
    answer = shipped_on_codes(
        made / "images.onnx", options=options, max_error="36dB", out=tmp_path / "out"
    )
    mixture = answer["mixture"]
    layers = {layer["call"]: layer for layer in mixture["layers"]}
    assert answer["sqnr_db"] >= 36.0 and layers["e"]["multiplied"] == "float32"
    assert {"int8", "uint8"} & {layer["stored"] for layer in layers.values()}
    assert sum(layer["noise_share"] for layer in layers.values()) == pytest.approx(1.0)
    assert abs(mixture["predicted_sqnr_db"] - answer["sqnr_db"]) < 3.0
    network = tilewright.load(tmp_path / "out")
    single = reference(made / "images.onnx", {"x": X[1:2]})["y"]
    assert largest(np.asarray(network(X[1:2])), single) < 0.05
    shown = succeed(tmp_path, "show", tmp_path / "out")
    assert shown["source"]["precision"] == "auto" and shown["mixture"]["front"]
    compared = succeed(tmp_path, "compare", tmp_path / "out", "--peers", "onnxruntime")
    assert {row["precision"] for row in compared["rows"]} == {"fp32", "int8"}
    assert {row["own_precision"] for row in compared["rows"]} == {"auto (int8)"}


@pytest.mark.on_request
@pytest.mark.skipif(not half_lanes(local_placement().target), reason="no bfloat16 here")
def test_all_on_codes_ships_where_it_is_the_fastest(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of the networks that race, which counts as the fastest here."""
    raced: list[int] = []
    told: list[str] = []

    def last(races: Sequence[Race]) -> Race:
        raced.append(len(races))
        return races[-1]

    monkeypatch.setattr(optimizing, "fastest_of", last)
    written(tmp_path, x=X)
    options = ModelOptions(precision="auto", calibration=tmp_path / "inputs.npz")
    whole_db = json.loads((made / "answer.json").read_text())["sqnr_db"]
    with tilewright.open(db="memory:", events=lambda event: told.append(str(event))) as session:
        found = session.optimize(
            made / "images.onnx", budget=0, out=tmp_path / "out", options=options,
            max_error=f"{whole_db - 8.0}dB",
        )  # fmt: skip
    assert found.result.mixture is None and raced[-1] > 1
    assert any("All on codes ran faster than mixtures" in each for each in told)
    network = tilewright.load(tmp_path / "out")
    codes = reference(tmp_path / "out" / "quantized.onnx", {"x": X[1:2]})["y"]
    assert largest(np.asarray(network(X[1:2])), codes) < 0.02


@pytest.mark.on_request
@pytest.mark.skipif(not half_lanes(local_placement().target), reason="no bfloat16 here")
def test_a_network_of_the_zoo_is_tuned_with_codes(tmp_path: Path) -> None:
    answer = shipped_on_codes(
        "zoo:mlp", options=ModelOptions(precision="auto"), max_error="30dB", out=tmp_path / "out",
        budget=24,
    )  # fmt: skip
    layers = answer["mixture"]["layers"]
    assert answer["sqnr_db"] >= 30.0 and answer["measurements"]
    assert any(each["multiplied"] == "int8" and each["unit"] for each in layers)


def test_it_is_compiled_in_python(made: Path) -> None:
    network = tilewright.compile(made / "images.onnx", options=CODES)
    single = reference(made / "images.onnx", {"x": X[:1]})["y"]
    assert 1e-4 < largest(np.asarray(network(X[:1])), single) < 0.1
