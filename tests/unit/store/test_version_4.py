"""Databases and exports of before resources were told apart from devices are carried over."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.records.store_records import measurements
from tilewright.core.records import PlacementKey
from tilewright.core.targets import Resources, threads_alone
from tilewright.hardware.legacy import ClassesOfBefore, class_of_before
from tilewright.store import open_store
from tilewright.store.database import SqliteStore
from tilewright.store.known_candidates import candidates_of
from tilewright.store.rows import row_of

FILES = Path(__file__).parents[2] / "fixtures/version_4"
CLASS = "intel-xeon-processor-avx512-137051efbe"
BEFORE = {
    "intel-xeon-processor-avx512-1t-f0afb7009f": (CLASS, threads_alone(1)),
    "intel-xeon-processor-avx512-2t-839b027228": (CLASS, threads_alone(2)),
    "intel-xeon-processor-avx512-2t-839b027228+cache=cold": (
        CLASS + "+cache=cold",
        threads_alone(2),
    ),
}
"""What the classes of the files are now."""

ROWS = {
    "measurements": {(CLASS, "1t"): 38, (CLASS, "2t"): 13, (CLASS + "+cache=cold", "2t"): 5},
    "runs": {(CLASS, "1t"): 2, (CLASS, "2t"): 1, (CLASS + "+cache=cold", "2t"): 1},
    "shipments": {(CLASS, "1t"): 1, (CLASS, "2t"): 1},
    "networks": {(CLASS, "2t"): 1},
    "peaks": {(CLASS, "1t"): 4, (CLASS, "2t"): 4, (CLASS + "+cache=cold", "2t"): 3},
}
"""How many rows there are of each class and its resources: as many as before."""


def unpacked(name: str, folder: Path) -> Path:
    path = folder / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((FILES / name).read_bytes()))
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return unpacked("database.db.gz", tmp_path)


def counted(path: Path) -> dict[str, dict[tuple[str, str], int]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: {
                (name, resources): count
                for name, resources, count in connection.execute(
                    f"SELECT device_class, resources, count(*) FROM {table} GROUP BY 1, 2"
                )
            }
            for table in ROWS
        }


def contents(path: Path) -> Counter[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return Counter(
            (table, content)
            for table in ("measurements", "failures", "shipments", "networks", "peaks")
            for (content,) in connection.execute(f"SELECT content FROM {table}")
        )


def test_every_row_belongs_to_the_new_class_and_its_resources(before: Path) -> None:
    with open_store(before) as store:
        assert {device.class_key for device in store.devices()} == {CLASS, CLASS + "+cache=cold"}
        for key, (name, resources) in BEFORE.items():
            here = PlacementKey(device_class=name, resources=resources)
            rows = store.stored_measurements(placement=here)
            assert len(rows) == ROWS["measurements"][name, str(resources)]
            assert {(row.device_class, row.resources) for row in rows} == {(name, resources)}
            assert key not in {device.class_key for device in store.devices()}
    assert counted(before) == ROWS


def test_contents_are_those_of_rows_written_today(before: Path) -> None:
    with open_store(before) as store:
        today = Counter(
            ("measurements", row_of(row)["content"]) for row in store.stored_measurements()
        )
    kept = contents(before)
    assert today == Counter({key: n for key, n in kept.items() if key[0] == "measurements"})


@pytest.mark.parametrize("threads", [1, 2])
def test_what_was_tuned_with_some_threads_is_found_with_them_alone(
    before: Path, threads: int
) -> None:
    here = PlacementKey(device_class=CLASS, resources=threads_alone(threads))
    elsewhere = PlacementKey(device_class=CLASS, resources=Resources(cores=1, threads=threads + 1))
    with open_store(before) as store:
        (shipped,) = store.all_shipped(here)
        (run,) = [run for run in store.runs(shipped.network_key, here) if run.command == "optimize"]
        assert run.state in ("done", "converged", "converged graph")
        assert store.peak(here, "flop_per_s")
        known = {w.key for w in store.workloads() if measurements(store, w.key, here)}
        assert candidates_of(shipped) and known
        assert store.all_shipped(elsewhere) == []
        assert store.peak(elsewhere, "flop_per_s") is None


@pytest.mark.parametrize("kind", ["jsonl", "csv", "t4", "autotvm"])
def test_exports_of_before_are_known_to_the_database_they_are_of(
    before: Path, tmp_path: Path, kind: str
) -> None:
    path = unpacked(f"export.{kind}.gz", tmp_path)
    with open_store(before) as store:
        taken = store.import_file(path, kind)
    assert (taken.imported, taken.skipped) == (0, ())
    assert taken.known >= 56
    assert counted(before) == ROWS


@pytest.mark.parametrize("kind", ["jsonl", "t4", "autotvm"])
def test_exports_of_before_fill_a_new_database(tmp_path: Path, before: Path, kind: str) -> None:
    with open_store(tmp_path / "new.db") as store:
        taken = store.import_file(unpacked(f"export.{kind}.gz", tmp_path), kind)
        assert taken.skipped == ()
    found = counted(tmp_path / "new.db")
    assert found["measurements"] == ROWS["measurements"]
    if kind == "jsonl":
        assert found == ROWS
        open_store(before).close()
        assert contents(tmp_path / "new.db") == contents(before)


def test_a_table_names_no_devices_so_rows_keep_their_class_until_one_is_known(
    tmp_path: Path, before: Path
) -> None:
    path = unpacked("export.csv.gz", tmp_path)
    with open_store(tmp_path / "bare.db") as store:
        store.import_file(path, "csv")
    found = counted(tmp_path / "bare.db")["measurements"]
    assert found == {
        (key, str(resources)): ROWS["measurements"][name, str(resources)]
        for key, (name, resources) in BEFORE.items()
    }
    with open_store(before) as known, open_store(tmp_path / "knowing.db") as store:
        for device in known.devices():
            store.add_device(device)
        store.import_file(path, "csv")
    assert counted(tmp_path / "knowing.db")["measurements"] == ROWS["measurements"]


def test_two_databases_of_before_are_merged(tmp_path: Path, before: Path) -> None:
    (tmp_path / "other").mkdir()
    other = unpacked("database.db.gz", tmp_path / "other")
    with open_store(before) as store:
        taken = store.merge(other)
    assert (taken.imported, taken.skipped) == (0, ())
    assert counted(before) == ROWS


def test_the_names_of_before_follow_from_target_and_resources(before: Path) -> None:
    with open_store(before) as store:
        devices = [device for device in store.devices() if device.class_key == CLASS]
    for key, (name, resources) in BEFORE.items():
        if name == CLASS:
            assert class_of_before(devices[0].target, resources) == key
    classes = ClassesOfBefore(devices)
    for key, (name, resources) in BEFORE.items():
        assert classes.of(key) == PlacementKey(device_class=name, resources=resources)
    unknown = classes.of("some-cpu-sse-12t-0123456789")
    assert unknown.device_class == "some-cpu-sse-12t-0123456789"
    assert unknown.resources == threads_alone(12)


def test_a_device_that_cannot_be_read_stops_nothing(before: Path) -> None:
    with closing(sqlite3.connect(before)) as connection:
        connection.execute("UPDATE devices SET facts = '{' WHERE class_key LIKE '%-2t-%'")
        connection.commit()
    with open_store(before) as store:
        assert isinstance(store, SqliteStore)
        kept = store.stored_measurements(
            placement=PlacementKey(
                device_class="intel-xeon-processor-avx512-2t-839b027228",
                resources=threads_alone(2),
            )
        )
    assert len(kept) == 13
    found = counted(before)["measurements"]
    assert found[CLASS, "1t"] == 38 and sum(found.values()) == 56


def edited(before: Path, kind: str, **fields: Any) -> str:
    """An export of before whose entries of a kind have other fields, and nothing else."""
    lines = unpacked("export.jsonl.gz", before.parent).read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    kept = [entries[0], *(e | fields for e in entries[1:] if e["record"] == kind)]
    return "\n".join(json.dumps(entry) for entry in kept)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("device", {"threads": 0}),
        ("device", {"threads": -1}),
        ("device", {"threads": 1 << 40, "class_key": "one"}),
        ("device", {"target": "{"}),
        ("device", {"target": "[]"}),
        ("device", {"cpu": {}}),
        ("measurement", {"resources": {"cores": 9, "threads": 1, "kind": ""}}),
        ("measurement", {"resources": {"cores": 0, "threads": 0, "kind": ""}}),
        ("measurement", {"resources": "2t"}),
        ("measurement", {"resources": None}),
        ("run", {"resources": {"cores": 2, "threads": 1, "kind": ""}}),
        ("peak", {"resources": {"cores": 2, "threads": 1, "kind": ""}}),
        ("shipment", {"resources": {"cores": 2, "threads": 1, "kind": ""}}),
        ("network", {"resources": {"cores": 2, "threads": 1, "kind": ""}}),
    ],
)
def test_what_cannot_be_is_listed_and_not_taken(
    before: Path, tmp_path: Path, kind: str, fields: dict[str, Any]
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(edited(before, kind, **fields))
    count = len(path.read_text().splitlines()) - 1
    with open_store(tmp_path / "new.db") as store:
        taken = store.import_file(path, "jsonl")
        if fields.get("threads") == 1 << 40:
            assert taken.skipped == () and len(store.devices()) == 1
        else:
            assert len(taken.skipped) == count and all(s.reason for s in taken.skipped)


def test_a_device_whose_target_is_no_target_disturbs_no_import(
    before: Path, tmp_path: Path
) -> None:
    with open_store(before) as known, open_store(tmp_path / "new.db") as store:
        for device in known.devices():
            store.add_device(replace(device, target=replace(device.target, tvm="[", cores=1 << 40)))
        taken = store.import_file(unpacked("export.csv.gz", tmp_path), "csv")
    assert (taken.measurements, taken.skipped) == (56, ())
