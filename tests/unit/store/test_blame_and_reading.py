"""Errors name the database that is to blame; what may not be written can be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.records.store_records import CPU_A, ONE, measurement, measurements, shipped_plan
from tilewright.collect.interchanging import merge
from tilewright.core.errors import ModelError, StoreError, TilewrightError
from tilewright.core.records import Run
from tilewright.store import open_for_reading, open_store
from tilewright.store.database import SqliteStore
from tilewright.store.schema import SCHEMA_VERSION

pytestmark = pytest.mark.regression

KEY = ("conv2d-1", CPU_A)


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def scribble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    content[half:] = b"\xa5" * (len(content) - half)
    path.write_bytes(content)


def misname(path: Path) -> None:
    """The schema tells of a table in bytes that are no text."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE TABLE peaks", b"CREATE \xff\xfe\x8c TAB peaks"))


BROKEN: dict[str, Callable[[Path], object]] = {
    "cut short": cut,
    "scribbled over": scribble,
    "no text": misname,
    "text": lambda path: path.write_text("dear diary, " * 100),
    "foreign": lambda path: run_sql(path, "PRAGMA application_id = 77"),
    "newer": lambda path: run_sql(path, "UPDATE meta SET value = '999'"),
    "no version": lambda path: run_sql(path, "DELETE FROM meta"),
    "a table less": lambda path: run_sql(path, "DROP TABLE failures"),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.db"
    with open_store(path) as store:
        store.add([measurement()])
    return path


@pytest.fixture
def bad(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "bad.db"
    with open_store(path) as store:
        store.add([measurement(number=n) for n in range(600)])
    BROKEN[request.param](path)
    return path


def refused(do: Callable[[], object], bad: Path, good: Path) -> None:
    """It is refused, the bad one is named and not the good one, and both are as they were."""
    before = bad.read_bytes()
    with pytest.raises(TilewrightError) as caught:
        do()
    assert caught.value.exit_code in (4, 5)
    assert str(bad) in caught.value.message
    assert str(good) not in caught.value.message
    assert "move it away" not in str(caught.value)
    assert bad.read_bytes() == before
    with open_store(good) as store:
        assert measurements(store, *KEY) == [measurement()]


def imported(good: Path, bad: Path) -> None:
    with open_store(good) as store:
        store.import_file(bad, "db")


def merged(good: Path, bad: Path) -> None:
    with open_store(good) as store:
        store.merge(bad)


@pytest.mark.parametrize("bad", BROKEN, indirect=True)
@pytest.mark.parametrize("do", [imported, merged])
def test_an_import_blames_what_is_imported(do, bad: Path, good: Path) -> None:
    refused(lambda: do(good, bad), bad, good)


@pytest.mark.parametrize("bad", ["scribbled over", "newer"], indirect=True)
def test_a_merge_blames_the_bad_one_in_every_order(bad: Path, good: Path, tmp_path: Path) -> None:
    into = tmp_path / "into.db"
    refused(lambda: merge(good, bad, None), bad, good)
    refused(lambda: merge(good, bad, into), bad, good)
    refused(lambda: merge(bad, good, into), bad, good)


@pytest.mark.parametrize("bad", ["newer", "text"], indirect=True)
def test_a_bad_receiver_is_blamed_itself(bad: Path, good: Path) -> None:
    refused(lambda: merge(bad, good, None), bad, good)
    refused(lambda: merge(good, good, bad), bad, good)


def test_a_pipe_is_not_waited_for(good: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for kind in (None, "jsonl", "db"):
        with open_store(good) as store, pytest.raises(ModelError, match="a pipe"):
            store.import_file(tmp_path / "pipe.jsonl", kind)


DAMAGE = {
    "measurements": ["samples_s = '[1e999]'", "created_at = 'yesterday'", "settings = '[[1, 2]]'"],
    "runs": ["seed = 'none'", "spent_s = 'long'"],
    "shipments": ["numbers = '[]'", "latency_s = x'00'"],
    "peaks": ["value = 'high'"],
    "devices": ["facts = '{}'"],
}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    path = tmp_path / "full.db"
    with open_store(path) as store:
        store.add([measurement(number=1), measurement(number=2)])
        run = Run(
            command="tune",
            model="m",
            network_key="net",
            device_class="cpu-a",
            resources=ONE,
            seed=0,
            state="done",
        )
        store.begin_run(run)
        store.ship(shipped_plan())
        store.add_peak(CPU_A, "flop_per_s", 1e9)
        store.add_device(PLACEMENT.device)
    return path


def test_a_peak_that_is_no_number_is_told(full: Path) -> None:
    run_sql(full, "UPDATE peaks SET value = '[1e999]'")
    with open_store(full) as store, pytest.raises(StoreError, match="peaks"):
        store.peak(CPU_A, "flop_per_s")


@pytest.mark.parametrize(
    "table, change", [(table, change) for table, changes in DAMAGE.items() for change in changes]
)
def test_rows_that_hold_no_record_are_told(
    full: Path, good: Path, tmp_path: Path, table: str, change: str
) -> None:
    run_sql(full, f"UPDATE {table} SET {change} WHERE rowid = 1")
    with open_store(full) as store, pytest.raises(StoreError) as caught:
        store.export(tmp_path / "all.jsonl")
    assert str(full) in caught.value.message and table in caught.value.message
    assert "db import" in str(caught.value)
    assert not (tmp_path / "all.jsonl").exists()
    with open_store(good) as store:
        taken = store.merge(full)
    assert len(taken.skipped) == 1 and table in taken.skipped[0].reason
    assert taken.imported == 5


@pytest.fixture
def frozen(tmp_path: Path) -> Generator[Callable[[Path], None]]:
    """Makes a folder one that may not be written; skipped where that cannot be."""
    mounted: list[Path] = []

    def freeze(folder: Path) -> None:
        if os.geteuid() != 0:
            folder.chmod(0o500)
            mounted.append(folder)
            return
        for words in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
            done = subprocess.run(["mount", *words, str(folder)], capture_output=True)
            if done.returncode != 0:
                pytest.skip("mounting is not allowed")
            mounted.append(folder)

    yield freeze
    for folder in set(mounted):
        if os.geteuid() != 0:
            folder.chmod(0o700)
        else:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def kept_in(folder: Path) -> Path:
    folder.mkdir()
    with open_store(folder / "a.db") as store:
        store.add([measurement()])
    return folder / "a.db"


def read(path: Path, tmp_path: Path) -> None:
    """All that only reads works, and leaves nothing; writing says why not."""
    before = sorted(path.parent.iterdir())
    with open_for_reading(path) as store:
        assert store.readonly and store.path == path
        info = store.info()
        assert (info.measurements, info.schema_version) == (1, SCHEMA_VERSION)
        assert measurements(store, *KEY) == [measurement()]
        assert store.export(tmp_path / "all.jsonl") == 1
        with pytest.raises(StoreError, match="reading only"):
            store.add([measurement()])
    assert sorted(path.parent.iterdir()) == before
    with pytest.raises(StoreError, match="may not be written"):
        open_store(path)


def test_a_read_only_folder(tmp_path: Path, frozen) -> None:
    path = kept_in(tmp_path / "place")
    frozen(path.parent)
    read(path, tmp_path)


def test_a_log_without_its_index(tmp_path: Path, frozen) -> None:
    """What a process that was killed left, copied without the index."""
    whole = tmp_path / "whole.db"
    store = open_store(whole)
    store.add([measurement()])
    (tmp_path / "place").mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{whole}{ending}", tmp_path / "place" / f"a.db{ending}")
    store.close()
    frozen(tmp_path / "place")
    read(tmp_path / "place" / "a.db", tmp_path)


def test_an_older_one_in_a_read_only_folder(tmp_path: Path, frozen) -> None:
    path = kept_in(tmp_path / "place")
    run_sql(
        path,
        "ALTER TABLE shipments DROP COLUMN plan",
        "ALTER TABLE shipments ADD COLUMN assignment VARCHAR DEFAULT '{}' NOT NULL",
        "ALTER TABLE shipments ADD COLUMN artifact_hash VARCHAR DEFAULT '' NOT NULL",
        "DROP TABLE networks",
        *(
            f"ALTER TABLE measurements DROP COLUMN {name}"
            for name in (
                "energy_j", "power_w", "idle_power_w", "energy_method", "energy_reason",
                "energy_samples_j", "energy_runs", "energy_window_s",
            )
        ),
        "UPDATE meta SET value = '2' WHERE name = 'schema_version'",
    )  # fmt: skip
    frozen(path.parent)
    read(path, tmp_path)


def test_what_may_be_written_is_opened_so(tmp_path: Path, store: SqliteStore) -> None:
    for path in (store.path, tmp_path / "new.db"):
        with open_for_reading(path) as opened:
            assert not opened.readonly
            opened.add([measurement()])
