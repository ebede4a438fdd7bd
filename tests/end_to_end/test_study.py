"""`study tuners` and `study subgraph`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands.command_line import call, rows, succeed
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import parse_target
from tilewright.insight import studies
from tilewright.kernels.knobs import split
from tilewright.kernels.search_space import KnobSpace
from tilewright.search.sweeps.sweep import Sweep, listed_part, parse_sweep, sweep_text

SHARES = [0.01, 0.02, 0.05, 0.1]
WORKLOAD = Workload(
    arguments=(Argument(type=TensorType((64,))),), steps=(Step(operator="relu", inputs=(0,)),)
)
ROW = {"tuner", "sweep", "measured_share", "regret_median", "regret_p90"}


def sweep_file(folder: Path) -> Path:
    """A made-up sweep of 168 settings on a workload of ours."""
    knobs = (split("tile", 64), split("other", 3072))
    space = KnobSpace(knobs=knobs)
    made: list[tuple[Any, float | None]] = []
    for number in space:
        settings = space.settings(number)
        tile, other = np.log2(int(settings["tile"])), np.log2(int(settings["other"]))
        slow = 1.0 + 0.2 * (tile - 4) ** 2 + 0.1 * (other - 6) ** 2
        made.append((settings, None if tile + other > 14 else 1e-4 * slow))
    part, seconds = listed_part("made_up", knobs, made)
    sweep = Sweep(
        name="bowl", part=part, seconds=seconds, again={0: 1e-3}, origin="test",
        workload=WORKLOAD, placement=parse_target("llvm", 1),
    )  # fmt: skip
    path = folder / "bowl.json"
    path.write_text(sweep_text(sweep))
    assert parse_sweep(path.read_text()).size == len(made)
    return path


def study(folder: Path, *words: object) -> dict[str, Any]:
    return succeed(folder, "study", "tuners", *words)


def test_tuners_on_a_sweep_of_ones_own(tmp_path: Path) -> None:
    sweep_file(tmp_path)
    words = ("--sweep", "bowl.json", "--seeds", "2", "--tuner", "random", "--tuner", "default",
             "--threads", "1")  # fmt: skip
    data = study(tmp_path, *words, "--out", "page")
    assert set(data) == {"rows"}
    assert all(set(row) == ROW for row in data["rows"])
    for name in ("random", "default"):
        mine = [row for row in data["rows"] if row["tuner"] == name]
        assert [row["measured_share"] for row in mine] == SHARES
        assert {row["sweep"] for row in mine} == {"bowl"}
        regrets = [row["regret_median"] for row in mine if row["regret_median"] is not None]
        assert regrets == sorted(regrets, reverse=True) and all(r >= 0 for r in regrets)
        for row in mine:
            if row["regret_p90"] is not None:
                assert row["regret_p90"] >= row["regret_median"]
    assert len(data["rows"]) == 2 * len(SHARES)
    assert "bowl" in (tmp_path / "page" / "study-tuners.html").read_text()
    assert study(tmp_path, *words)["rows"] == data["rows"], "replays of one seed are equal"
    assert rows(tmp_path) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "another 7"), ("workload", "conv2d("), ("workload", 3), ("device", {"kind": 1}),
        ("knobs", [{"name": "a"}]), ("knobs", 5), ("numbers", [0]), ("seconds", "x"),
        ("numbers", []), ("again", [[1]]), ("layouts", None), ("device", None),
    ],
)  # fmt: skip
def test_a_broken_sweep(tmp_path: Path, field: str, value: Any) -> None:
    path = sweep_file(tmp_path)
    data = json.loads(path.read_text())
    data[field] = value
    path.write_text(json.dumps(data))
    said = complaint(tmp_path, path)
    assert f"{path} is no sweep: " in said and "benchmarks/sweeps.py" in said


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe\x00", b'{"format": 1}'])
def test_what_is_no_sweep(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bowl.json"
    path.write_bytes(content)
    assert f"{path} is no sweep: " in complaint(tmp_path, path)


def complaint(folder: Path, path: Path) -> str:
    """What a study says of a sweep that it cannot use; it says so as of any other bad file."""
    done = call(folder, "study", "tuners", "--sweep", path, "--seeds", "1", "--threads", "1",
                "--tuner", "random", "--format", "json")  # fmt: skip
    assert done.code == 4, done.err
    assert done.out == "" and "Traceback" not in done.err
    return done.err


def test_a_sweep_that_is_not_there_and_a_parquet_that_is_none(tmp_path: Path) -> None:
    missing, table, folder = (tmp_path / name for name in ("bowl.json", "bowl.parquet", "bowl"))
    assert f"{missing} cannot be read" in complaint(tmp_path, missing)
    table.write_bytes(b"PAR1 not really")
    assert f"{table} is no sweep: " in complaint(tmp_path, table)
    folder.mkdir()
    assert f"{str(folder)!r} cannot be read" in complaint(tmp_path, folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tuners", "--tuner", "randum"), "random"),
        (("tuners", "--seeds", "0"), "--seeds"),
        (("subgraph", "zoo:mlp", "--tuner", "genetik"), "genetic"),
        (("subgraph", "zoo:mlp", "--budget", "much"), "--budget"),
    ],
)
def test_nonsense_writes_nothing(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = call(tmp_path, "study", *words, "--format", "json")
    assert done.code == 2, done.err
    assert done.out == "" and said in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_subgraphs_with_the_int8_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "_CASE_MEASUREMENTS", 2)
    model = "op:conv2d[n=1,c=16,h=14,w=14,k=3,out=16,pad=1]"
    words = ("study", "subgraph", model, "--budget", "4", "--tuner", "random")
    done = call(tmp_path, *words, "--format", "json")
    assert done.code == 0, done.err
    data = done.data
    assert set(data) == {"rows", "network_gain", "network_gain_low", "network_gain_high"}
    names = [row["task"] for row in data["rows"]]
    assert names[-2:] == ["int8 case 1x1", "int8 case 3x3"] and len(names) > 2
    for row in data["rows"]:
        names = "task op_level_s subgraph_level_s gain gain_low gain_high"
        assert set(row) == {*names.split()}
        assert row["op_level_s"] > 0 and row["subgraph_level_s"] > 0
        assert row["gain"] == pytest.approx(row["op_level_s"] / row["subgraph_level_s"])
        assert row["gain_low"] <= row["gain"] <= row["gain_high"]
    assert data["network_gain"] is not None and data["network_gain"] > 0
    assert rows(tmp_path) > 0
