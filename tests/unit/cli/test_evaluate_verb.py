"""`tilewright evaluate`: the json contract, the formats, bad input."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest

import tilewright as tw
from helpers.records.predictor_tables import knob_table, power_table, softmax_table, write_sheets
from tilewright.cli.evaluate import FAMILIES as NAMED
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Stage
from tilewright.predict.families import FAMILIES
from tilewright.predict.regressors import Trees

Command = Callable[..., Any]
FIELDS = {"family", "target", "group", "n", "mape", "median_ape", "p90_ape", "spearman"}
FIELDS |= {"within_5", "within_10", "within_20", "coverage_90"}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No fake: the verb needs neither a compiler nor a database. Fewer trees than usual suffice
    for tables this small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "none.db"))
    for name, family in FAMILIES.items():
        if isinstance(family.regressor, Trees):
            trees = replace(family.regressor, rounds=80, rate=0.15)
            monkeypatch.setitem(FAMILIES, name, replace(family, regressor=trees))


def data(ran: Any) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["command"] == "evaluate"
    return document["data"]


def test_a_split_by_configuration(tilewright: Command, tmp_path: Path) -> None:
    power_table().write_parquet(tmp_path / "t.parquet")
    asked = ("evaluate", "--table", "t.parquet", "--family", "gemm_power", "--format", "json")
    found = data(tilewright(*asked, "--folds", "4"))
    (row,) = found["rows"]
    assert set(row) >= FIELDS
    assert (row["group"], row["target"], row["n"]) == ("gpu", "power_w", 280)
    assert row["mape"] < 0.06 and row["spearman"] > 0.95
    assert 0.8 <= row["coverage_90"] <= 1
    assert data(tilewright(*asked, "--folds", "4")) == found
    assert not (tmp_path / "none.db").exists()


def test_a_device_left_out(tilewright: Command, tmp_path: Path) -> None:
    softmax_table().write_csv(tmp_path / "t.csv")
    write_sheets(tmp_path / "s.json")
    asked = ("evaluate", "--table", "t.csv", "--family", "softmax", "--split", "device")
    asked += ("--specs", "s.json", "--format", "json")
    rows = {row["group"]: row for row in data(tilewright(*asked))["rows"]}
    assert set(rows) == {"gpu0", "gpu1", "gpu2", "all"}
    assert rows["all"]["n"] == 360 == sum(rows[f"gpu{d}"]["n"] for d in range(3))
    assert rows["all"]["mape"] < 0.12 and rows["all"]["spearman"] > 0.95
    few = {row["group"]: row for row in data(tilewright(*asked, "--shots", "20"))["rows"]}
    assert few["all"]["mape"] < 0.06
    assert 300 <= few["all"]["n"] < 345


def test_a_card_and_its_plot(tilewright: Command, tmp_path: Path) -> None:
    power_table(12).write_parquet(tmp_path / "t.parquet")
    asked = ("evaluate", "--table", "t.parquet", "--family", "gemm_power", "--folds", "2")
    ran = tilewright(*asked, "--out", "kept")
    assert ran.code == 0 and "predictors.html" in ran.out
    (card,) = json.loads((tmp_path / "kept" / "evaluate.json").read_text())["data"]["cards"]
    assert (card["family"], card["target"], card["devices"]) == ("gemm_power", "power_w", ["gpu"])
    assert (card["rows"], card["split"], card["folds"]) == (84, "configuration", 2)
    assert 1 < card["configurations"] < 84 and len(card["data_hash"]) == 16
    assert {"name": "m", "low": 16.0, "high": 1024.0}.keys() == card["covers"][0].keys()
    assert card["version"] == tw.__version__ and card["measured_from"] is None
    page = (tmp_path / "kept" / "predictors.html").read_text()
    assert 'class="chart scatter"' in page and card["data_hash"] in page
    text = (tmp_path / "kept" / "predictors.md").read_text()
    assert text.startswith("# Predictors\n\nEach card judges a predictor on rows that it was not")
    assert "measured power of gemm\\_power, one point for each row](gemm_power-power_w.svg)" in text
    assert (tmp_path / "kept" / "gemm_power-power_w.svg").read_text().startswith("<svg xmlns")
    (tmp_path / "file").write_text("")
    ran = tilewright(*asked, "--out", "file")
    assert ran.code == 4 and "cannot be written" in ran.err


def test_knobs_are_searched(tilewright: Command, tmp_path: Path) -> None:
    knob_table().write_parquet(tmp_path / "t.parquet")
    ran = tilewright(
        *("evaluate", "--table", "t.parquet", "--family", "knobs", "--split", "device"),
        *("--shots", "30", "--format", "json"),
    )
    found = data(ran)
    assert [pick["group"] for pick in found["picks"]] == ["gpu0", "gpu1", "gpu2"]
    assert all(pick["verified"] == 20 and pick["regret"] < 0.05 for pick in found["picks"])


@pytest.mark.parametrize("format", ["table", "csv", "md"])
def test_formats(tilewright: Command, tmp_path: Path, format: str) -> None:
    power_table(12).write_parquet(tmp_path / "t.parquet")
    asked = ("evaluate", "--table", "t.parquet", "--family", "gemm_power", "--folds", "2")
    ran = tilewright(*asked, "--format", format)
    assert ran.code == 0
    if format == "csv":
        (row,) = csv.DictReader(io.StringIO(ran.out))
        assert set(row) >= FIELDS
    else:
        assert "mean error" in ran.out


def broken(tmp_path: Path, name: str) -> polars.DataFrame:
    table = power_table(12)
    if name == "five rows":
        return table[:5]
    if name == "lacking":
        return table.drop("n", "power_w")
    if name == "text":
        return table.with_columns(polars.col("m").cast(polars.String) + "x")
    if name == "nothing":
        return table.with_columns(power_w=polars.lit(None, polars.Float64))
    return table


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("five rows", 4, "5 usable rows"),
        ("lacking", 2, "n, power_w (W)"),
        ("text", 4, "column m holds String"),
        ("nothing", 4, "0 usable rows"),
    ],
)
def test_bad_tables(tilewright: Command, tmp_path: Path, name: str, code: int, says: str) -> None:
    broken(tmp_path, name).write_parquet(tmp_path / "t.parquet")
    ran = tilewright("evaluate", "--table", "t.parquet", "--family", "gemm_power")
    assert ran.code == code
    assert says in ran.err and "Traceback" not in ran.err


def test_bad_flags(tilewright: Command, tmp_path: Path) -> None:
    softmax_table(devices=1).write_parquet(tmp_path / "one.parquet")
    softmax_table().write_parquet(tmp_path / "t.parquet")
    write_sheets(tmp_path / "s.json")
    (tmp_path / "broken.parquet").write_text("no")
    (tmp_path / "t.txt").write_text("no")
    device = ("--family", "softmax", "--split", "device")
    known = ("--table", "t.parquet", *device, "--specs", "s.json")
    for code, says, tokens in (
        (2, "no family 'softmaks'", ("--table", "t.parquet", "--family", "softmaks")),
        (2, "two devices", ("--table", "one.parquet", *device, "--specs", "s.json")),
        (2, "No datasheet of gpu0", ("--table", "t.parquet", *device)),
        (2, "--shots goes with", ("--table", "t.parquet", "--family", "softmax", "--shots", "9")),
        (2, "at least 5", ("--table", "t.parquet", *device, "--shots", "3")),
        (2, "--table needs --family", ("--table", "t.parquet")),
        (
            2,
            "belong to no network",
            ("--table", "t.parquet", "--family", "softmax", "--split", "network"),
        ),
        (2, "--split device", ("--family", "softmax", "--shots", "9")),
        (2, "at least 10", ("--family", "softmax", "--split", "device", "--shots", "9")),
        (2, "--specs goes with --table", ("--family", "softmax", "--specs", "sheets.json")),
        (2, "--folds", ("--table", "t.parquet", "--family", "softmax", "--folds", "1")),
        (2, "neither .parquet nor .csv", ("--table", "t.txt", "--family", "softmax")),
        (4, "no table", ("--table", "broken.parquet", "--family", "softmax")),
        (
            4,
            "none.csv cannot be read: No such file or directory.\n",
            ("--table", "none.csv", "--family", "softmax"),
        ),
        (4, "needs 1020", (*known, "--shots", "1000")),
    ):
        ran = tilewright("evaluate", *tokens)
        assert (ran.code, says in ran.err) == (code, True), (tokens, ran.err)


def test_a_table_names_its_own_devices(tilewright: Command) -> None:
    ran = tilewright("evaluate", "--table", "t.csv", "--target", "cuda -model=H100")
    assert ran.code == 2 and "--target goes without --table" in ran.err


def test_rows_that_cannot_be_used_are_counted(tilewright: Command, tmp_path: Path) -> None:
    table = power_table(12)
    bad = table[:4].with_columns(
        power_w=polars.Series([0.0, -3.0, float("nan"), None], dtype=polars.Float64)
    )
    nameless = table[:2].with_columns(device=polars.lit(None, polars.String))
    twice = polars.concat([table, table, bad, nameless]).with_columns(m=polars.lit(64))
    twice.write_parquet(tmp_path / "t.parquet")
    asked = ("evaluate", "--table", "t.parquet", "--family", "gemm_power", "--format", "json")
    ran = tilewright(*asked)
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["data"]["rows"][0]["n"] == 2 * len(table)
    assert document["warnings"] == [
        "power_w: 2 rows left out: no device, or an operand that is missing or not above zero.",
        "power_w: 4 rows left out: no power_w above zero.",
    ]


def test_unknown_words_are_named(tilewright: Command, tmp_path: Path) -> None:
    polars.DataFrame(
        {
            "batch": [1] * 30,
            "in_channels": 3,
            "out_channels": range(1, 31),
            "height": 32,
            "kernel": 3,
            "stride": 1,
            "padding": ["full"] * 30,
            "use_bias": 0,
            "activation": ["relu"] * 30,
            "time_median_ms": 1.0,
        }
    ).write_csv(tmp_path / "t.csv")
    ran = tilewright("evaluate", "--table", "t.csv", "--family", "conv2d")
    assert ran.code == 4 and "'full'; known are same, valid" in ran.err


def test_from_python(session: None, tmp_path: Path) -> None:
    power_table(12).write_parquet(tmp_path / "t.parquet")
    events: list[Event] = []
    with tw.open(threads=1, events=events.append) as opened:
        found = opened.evaluate("t.parquet", family="gemm_power", folds=2)
        with pytest.raises(UsageError, match="no split 'row'"):
            opened.evaluate("t.parquet", family="gemm_power", split="row")  # pyright: ignore
    assert found.rows[0].n == 12 * 7
    assert [type(event) for event in events] == [Stage]


def test_help(tilewright: Command) -> None:
    ran = tilewright("evaluate", "--help")
    assert ran.code == 0
    for word in (*FAMILIES, "--specs", "--shots", "--folds"):
        assert word in ran.out
    assert NAMED.split(", ") == list(FAMILIES)
