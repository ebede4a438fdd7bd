"""Rows that come with the package: written, read, and found for the nearest device class."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import polars
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from helpers.records.predictor_kernels import PEAKS, rows
from tilewright.core.errors import ModelError
from tilewright.core.events import discard
from tilewright.predict import collected
from tilewright.predict.collected import read_rows, shipped_data, write_rows
from tilewright.predict.modelling import predictors_of
from tilewright.store import open_store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(collected, "DATA", tmp_path)
    shipped_data.cache_clear()
    yield tmp_path
    shipped_data.cache_clear()


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    write_rows(path, rows(4, 3), PLACEMENT, PEAKS)
    back = read_rows(path)
    assert sorted(map(repr, back)) == sorted(map(repr, rows(4, 3)))
    metered = [replace(row, energy_j=1e-3) for row in rows(4, 3)[:2]] + rows(4, 3)[2:]
    write_rows(path, metered, PLACEMENT, PEAKS)
    assert sorted(map(repr, read_rows(path))) == sorted(map(repr, metered))
    polars.read_parquet(path).drop("energy_j").write_parquet(path)
    assert sorted(map(repr, read_rows(path))) == sorted(map(repr, rows(4, 3))), "as files of before"
    described = json.loads(path.with_suffix(".json").read_text())
    assert described["peaks"] == asdict(PEAKS)
    assert described["device"]["instance"] == "", "nothing names the machine"


def test_the_days_of_the_measurements_come_along(folder: Path) -> None:
    days = ("2030-01-02", "2030-01-05")
    write_rows(folder / f"{PLACEMENT.key}.parquet", rows(2, 2), PLACEMENT, PEAKS, days)
    (found,) = shipped_data()
    assert found.placement.key == PLACEMENT.key and found.measured == days
    write_rows(folder / f"{PLACEMENT.key}.parquet", rows(2, 2), PLACEMENT, PEAKS)
    shipped_data.cache_clear()
    (again,) = shipped_data()
    assert again.measured is None


def test_the_class_itself_is_exact_and_another_one_is_the_nearest(
    folder: Path, tmp_path: Path
) -> None:
    wide = altered(PLACEMENT, class_key="wide", vector_bytes=64)
    narrow = altered(PLACEMENT, class_key="narrow", vector_bytes=16)
    for placement in (wide, narrow):
        write_rows(folder / f"{placement.key}.parquet", rows(2, 2), placement, PEAKS)
    with open_store(tmp_path / "none.db") as store:
        own = predictors_of(wide, store, discard)
        assert own.came_along is own.shipped is not None and own.lender is None
        assert own.shipped.placement.key == wide.key
        near = predictors_of(altered(wide, class_key="other", threads=4), store, discard)
        assert near.lender is near.shipped is not None and near.came_along is None
        assert near.lender.placement.key == wide.key and len(near.lender.rows) == 4
        foreign = predictors_of(altered(PLACEMENT, architecture="riscv64"), store, discard)
        assert foreign.shipped is foreign.came_along is foreign.lender is None


def test_without_any_there_is_none(folder: Path) -> None:
    assert not list(folder.iterdir()) and shipped_data() == ()


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ModelError, match="broken.parquet"):
        read_rows(path)


def test_the_power_of_an_h100_ships() -> None:
    (found,) = [one for one in shipped_data() if str(one.placement.key).startswith("h100-")]
    powers_w = [row.energy_j / row.latency_s for row in found.rows if row.energy_j is not None]
    assert len(powers_w) >= 389 and min(powers_w) > 70 and max(powers_w) < 710
