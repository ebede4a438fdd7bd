"""Rows that come with the package: written, read, and found for the nearest device class."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from helpers.records.predictor_kernels import PEAKS, rows
from tilewright.core.errors import ModelError
from tilewright.predict import shipped
from tilewright.predict.shipped import read_rows, shipped_data, write_rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(shipped, "DATA", tmp_path)
    described = shipped._described  # pyright: ignore[reportPrivateUsage]
    described.cache_clear()
    yield tmp_path
    described.cache_clear()


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    write_rows(path, rows(4, 3), PLACEMENT, PEAKS)
    back = read_rows(path)
    assert sorted(map(repr, back)) == sorted(map(repr, rows(4, 3)))
    described = json.loads(path.with_suffix(".json").read_text())
    assert described["peaks"] == asdict(PEAKS)
    assert described["device"]["instance"] == "", "nothing names the machine"


def test_the_days_of_the_measurements_come_along(folder: Path) -> None:
    days = ("2030-01-02", "2030-01-05")
    write_rows(folder / f"{PLACEMENT.key}.parquet", rows(2, 2), PLACEMENT, PEAKS, days)
    found = shipped_data(PLACEMENT)
    assert found is not None and found.measured == days
    write_rows(folder / f"{PLACEMENT.key}.parquet", rows(2, 2), PLACEMENT, PEAKS)
    shipped._described.cache_clear()  # pyright: ignore[reportPrivateUsage]
    again = shipped_data(PLACEMENT)
    assert again is not None and again.measured is None


def test_the_class_itself_is_exact_and_another_one_is_the_nearest(folder: Path) -> None:
    wide = altered(PLACEMENT, class_key="wide", vector_bytes=64)
    narrow = altered(PLACEMENT, class_key="narrow", vector_bytes=16)
    for placement in (wide, narrow):
        write_rows(folder / f"{placement.key}.parquet", rows(2, 2), placement, PEAKS)
    own = shipped_data(wide)
    assert own is not None and own.exact and own.placement.device.class_key == "wide"
    similar = altered(wide, class_key="other", threads=4)
    near = shipped_data(similar)
    assert near is not None and not near.exact and near.placement.device.class_key == "wide"
    assert len(near.rows) == 4
    foreign = altered(PLACEMENT, architecture="riscv64")
    assert shipped_data(foreign) is None


def test_without_any_there_is_none(folder: Path) -> None:
    assert shipped_data(PLACEMENT) is None


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ModelError, match="broken.parquet"):
        read_rows(path)
