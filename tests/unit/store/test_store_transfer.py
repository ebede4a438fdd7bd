"""Export, import, merge and clean-up."""

from __future__ import annotations

import csv
import json
import re
import resource
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.records.store_records import (
    CPU_A,
    CPU_B,
    DEVICES,
    NETWORKS,
    ONE,
    OUTCOMES,
    RUNS,
    SHIPPED,
    C,
    failure,
    failures,
    measurement,
    measurements,
)
from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, OutputError, StoreError, UsageError
from tilewright.core.records import Device, NetworkMeasurement, Outcome, Run, ShippedPlan
from tilewright.store import open_store, schema
from tilewright.store.database import SqliteStore
from tilewright.store.interchange.tables import to_frame

RUN = Run(
    command="",
    model="",
    network_key="net",
    device_class="c",
    resources=ONE,
    seed=0,
    state="running",
)


@contextmanager
def other_store(tmp_path: Path, name: str = "other.db") -> Generator[SqliteStore]:
    with open_store(tmp_path / name) as store:
        yield store


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


@settings(max_examples=20, deadline=None)
@given(
    outcomes=st.lists(OUTCOMES, max_size=6),
    run=RUNS,
    device=DEVICES,
    shipped=SHIPPED,
    network=NETWORKS,
    as_database=st.booleans(),
)
def test_round_trip_through_a_file(
    outcomes: list[Outcome],
    run: Run,
    device: Device,
    shipped: ShippedPlan,
    network: NetworkMeasurement,
    as_database: bool,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_store(folder / "a.db") as source:
            source.add(outcomes)
            source.begin_run(run)
            source.add_device(device)
            source.ship(shipped)
            source.add_network(network)
            source.add_peak(CPU_A, "flop_per_s", 2e11)
            written = source.export(folder / "a.jsonl")
        assert written == len(outcomes) + 5
        with open_store(folder / "b.db") as target:
            for _ in range(2):
                target.import_file(folder / ("a.db" if as_database else "a.jsonl"))
                target.export(folder / "b.jsonl")
                assert lines(folder / "b.jsonl") == lines(folder / "a.jsonl")


def test_import_counts_and_keeps_device_classes_apart(store: SqliteStore, tmp_path: Path) -> None:
    twice = measurement(number=5)
    store.add([measurement(), measurement(), twice])
    with other_store(tmp_path) as other:
        other.add([twice, twice, measurement(), failure(), measurement(device_class="gpu")])
        other.add_workloads([])
        other.export(tmp_path / "o.jsonl")
    first = store.import_file(tmp_path / "o.jsonl")
    assert (first.measurements, first.failures, first.known) == (2, 1, 2)
    again = store.merge(tmp_path / "other.db")
    assert (again.measurements, again.failures, again.known) == (0, 0, 5)
    assert len(measurements(store, "conv2d-1", CPU_A)) == 4
    assert len(measurements(store, "conv2d-1", replace(CPU_A, device_class="gpu"))) == 1
    assert store.info().devices == 2
    assert store.merge(store.path).measurements == 0


@pytest.mark.regression
def test_a_merge_leaves_nothing_beside_the_giving_database(
    store: SqliteStore, tmp_path: Path
) -> None:
    with other_store(tmp_path) as other:
        other.add([measurement()])
    giving = tmp_path / "other.db"
    before = giving.read_bytes()
    assert store.merge(giving).measurements == 1
    assert [path.name for path in tmp_path.glob("other.db*")] == ["other.db"]
    assert giving.read_bytes() == before
    with other_store(tmp_path) as other:
        other.add([measurement(number=1)])
        assert store.merge(giving).measurements == 1
        other.add([measurement(number=2)])
    assert store.merge(giving).measurements == 1


def test_many_records_cross_batches(store: SqliteStore, tmp_path: Path) -> None:
    with other_store(tmp_path) as other:
        other.add([measurement(number=n % 700) for n in range(1400)])
    assert store.merge(tmp_path / "other.db").measurements == 1400
    assert store.merge(tmp_path / "other.db").measurements == 0
    for name in ("m.csv", "m.parquet"):
        assert store.export(tmp_path / name) == 1400
    assert polars.read_csv(tmp_path / "m.csv").height == 1400


def test_merged_measurements_follow_their_run(store: SqliteStore, tmp_path: Path) -> None:
    store.begin_run(RUN)
    with other_store(tmp_path) as other:
        theirs = other.begin_run(RUN)
        other.add([measurement(run_id=theirs.id), measurement(number=1, run_id=77)])
    assert store.merge(tmp_path / "other.db").runs == 1
    mine, copied = store.runs("net", C)
    assert mine.id != copied.id
    known = measurements(store, "conv2d-1", CPU_A)
    assert [m.run_id for m in known] == [copied.id, None]
    with other_store(tmp_path) as other:
        other.update_run(replace(theirs, state="done", spent_s=9.0))
    assert store.merge(tmp_path / "other.db").runs == 0
    assert [run.spent_s for run in store.runs("net", C)] == [0.0, 9.0]


def test_tables_and_json(store: SqliteStore, tmp_path: Path) -> None:
    for name in ("empty.csv", "empty.parquet", "empty.json", "empty.jsonl"):
        assert store.export(tmp_path / name) == 0
    store.add([measurement(), measurement(number=2), failure()])
    store.export(tmp_path / "m.csv")
    with (tmp_path / "m.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["latency_s"]) for row in rows] == [0.002, 0.003]
    assert json.loads(rows[1]["samples_s"]) == [0.003, 0.001, 2.002]
    store.export(tmp_path / "noname", "parquet")
    assert (
        polars.read_parquet(tmp_path / "noname")
        .drop("workload")
        .equals(to_frame(store.stored_measurements()))
    )
    assert store.export(tmp_path / "new" / "m.json") == 3
    data = json.loads((tmp_path / "new" / "m.json").read_text())
    assert data["schema_version"] == schema.SCHEMA_VERSION
    assert [r["record"] for r in data["records"]] == ["measurement", "measurement", "failure"]


def test_places_an_export_cannot_go(store: SqliteStore, tmp_path: Path) -> None:
    store.add([measurement()])
    (tmp_path / "file").write_text("x")
    (tmp_path / "d.csv").mkdir()
    for place in (tmp_path / "d.csv", tmp_path / "file" / "a.csv"):
        with pytest.raises(OutputError) as caught:
            store.export(place)
        assert str(place) in caught.value.message
    with pytest.raises(OutputError, match="device"):
        store.export(Path("/dev/null"), "csv")
    with pytest.raises(UsageError):
        store.export(tmp_path / "a.txt")
    (tmp_path / "link.jsonl").symlink_to(store.path)
    for own in (store.path, tmp_path / "link.jsonl", Path(f"{store.path}-wal")):
        with pytest.raises(UsageError, match="database itself"):
            store.export(own, "jsonl")
    assert len(measurements(store, "conv2d-1", CPU_A)) == 1


@pytest.mark.parametrize("format", ["csv", "jsonl", "json", "parquet"])
def test_a_failed_export_leaves_the_old_file(
    store: SqliteStore, tmp_path: Path, format: str
) -> None:
    store.add([measurement(number=n) for n in range(2000)])
    target = tmp_path / "out" / f"m.{format}"
    target.parent.mkdir()
    target.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OutputError):
            store.export(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


HEADER = '{"record":"tilewright","schema_version":1}\n'
GOOD_PEAK = '{"record":"peak","device_class":"c","name":"n","value":1.0,"created_at":1.0}\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "header is missing"),
        ("hello\n", "header is missing"),
        (GOOD_PEAK, "header is missing"),
        ('{"record":"tilewright"}\n', "no schema_version"),
        ('{"record":"tilewright","schema_version":9}\n', "newer tilewright"),
    ],
)
def test_files_that_are_no_export_are_refused(
    store: SqliteStore, tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    with pytest.raises(ModelError, match=complaint) as caught:
        store.import_file(path)
    assert str(path) in caught.value.message
    assert store.peak(C, "n") is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (GOOD_PEAK[:-9], "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"record":"photo"}', "unknown kind"),
        ('{"record":"tilewright","schema_version":1}', "unknown kind"),
        ('{"record":["peak"]}', "unknown kind"),
        ('{"record":"measurement","run_id":[]}', "missing required"),
        ('{"record":"peak","name":"n"}', "missing required"),
        (GOOD_PEAK.replace("1.0,", "NaN,"), "not finite"),
        (GOOD_PEAK.replace("1.0,", "1e999,"), "not finite"),
        ('{"record":"workload","key":"a-b","text":"{}"}', "does not fit"),
        ('{"record":"workload","key":"a-b","text":"\\ud800"}', "half a"),
        ('{"record":"run"}', "id and a uid|missing required"),
    ],
)
def test_a_broken_line_is_reported_and_the_rest_imported(
    store: SqliteStore, tmp_path: Path, line: str, complaint: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(HEADER + GOOD_PEAK + line.rstrip() + "\n" + GOOD_PEAK.replace('"n"', '"m"'))
    taken = store.import_file(path)
    assert (taken.lines, taken.imported, taken.peaks) == (3, 2, 2)
    assert [skipped.line for skipped in taken.skipped] == [3]
    assert re.search(complaint, taken.skipped[0].reason)
    assert (store.peak(C, "n"), store.peak(C, "m")) == (1.0, 1.0)


def test_broken_measurements_are_refused(store: SqliteStore, tmp_path: Path) -> None:
    store.add([measurement()])
    store.export(tmp_path / "good.jsonl")
    header, line = (tmp_path / "good.jsonl").read_text().splitlines()
    path = tmp_path / "bad.jsonl"
    changes: tuple[dict[str, object], ...] = (
        {"samples_s": []},
        {"samples_s": [float("inf")]},
        {"created_at": "now"},
        {"candidate": {"implementation": "x", "settings": [["a", 1.5]], "layouts": []}},
        {"candidate": {"implementation": "x", "settings": [["a", 1, 2]], "layouts": []}},
    )
    for change in changes:
        path.write_text(header + "\n" + json.dumps(json.loads(line) | change))
        taken = store.import_file(path)
        assert ([s.line for s in taken.skipped], taken.imported) == ([2], 0)
    assert store.info().measurements == 1


def test_imports_that_cannot_be_read(store: SqliteStore, tmp_path: Path) -> None:
    for missing in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ModelError, match="cannot be read"):
            store.import_file(missing)
    with pytest.raises(StoreError):
        store.merge(tmp_path / "none.db")


def test_imported_workloads_are_checked_against_their_key(
    store: SqliteStore, tmp_path: Path
) -> None:
    path = tmp_path / "w.jsonl"
    entry = {"record": "workload", "key": f"relu-{digest('{}')}", "text": "{}"}
    path.write_text(HEADER + json.dumps(entry))
    assert store.import_file(path).workloads == 1
    assert store.import_file(path).known == 1


def test_gc_removes_superseded_kernels_and_old_failures(store: SqliteStore) -> None:
    store.add(
        [
            measurement(number=1, kernel_hash="old"),
            measurement(number=2, kernel_hash="old", versions="0.1"),
            measurement(number=3, kernel_hash="new"),
            measurement(number=4, kernel_hash="new"),
            measurement(number=1, kernel_hash="old", device_class="cpu-b"),
            failure(number=1),
            failure(number=int(time.time())),
        ]
    )
    assert store.gc(keep_versions=["0.1"]).measurements == 1
    assert [m.created_at for m in measurements(store, "conv2d-1", CPU_A)] == [2, 3, 4]
    removed = store.gc(failures_older_than_s=3600)
    assert (removed.measurements, removed.failures) == (1, 1)
    assert [m.kernel_hash for m in measurements(store, "conv2d-1", CPU_B)] == ["old"]
    assert len(failures(store, "conv2d-1", CPU_A)) == 1


def test_gc_shrinks_the_file(store: SqliteStore) -> None:
    store.add([measurement(number=n, kernel_hash="old") for n in range(3000)])
    store.add([measurement(number=4000, kernel_hash="new")])
    removed = store.gc()
    assert removed.measurements == 3000
    assert removed.freed_bytes > 500_000
    assert store.info().size_bytes < 200_000
    assert store.info().measurements == 1
