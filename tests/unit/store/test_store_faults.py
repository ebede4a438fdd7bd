"""Every way a database can be wrong ends in a StoreError that says what to do."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from helpers.records.store_records import CPU_A, ONE, failures, measurement, measurements
from tilewright.core.errors import InternalError, StoreError
from tilewright.core.records import Run
from tilewright.store import migrations, open_store, schema
from tilewright.store.connections import connect
from tilewright.store.database import SqliteStore

KEY = ("conv2d-1", CPU_A)


OLDER = schema.SCHEMA_VERSION


def refused(path: Path, *, readonly: bool = False) -> str:
    """The message `open_store` refuses `path` with; the file must stay as it is."""
    before = path.read_bytes() if os.path.isfile(path) else None  # noqa: PTH113
    with pytest.raises(StoreError) as caught:
        open_store(path, readonly=readonly, busy_timeout_s=0.1)
    assert caught.value.exit_code == 5
    assert caught.value.hint
    assert str(path) in caught.value.message
    assert (path.read_bytes() if os.path.isfile(path) else None) == before  # noqa: PTH113
    return caught.value.message


def test_folders_devices_and_missing_files(tmp_path: Path) -> None:
    assert "is a folder" in refused(tmp_path)
    assert "device" in refused(Path("/dev/null"))
    assert "no database" in refused(tmp_path / "none.db", readonly=True)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "a.db")
    refused(tmp_path / ("n" * 300))


def test_an_unwritable_folder(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        assert "may not be written" in refused(tmp_path / "a.db")
        tmp_path.chmod(0o700)
    else:
        refused(Path("/proc/a.db"))


def test_a_read_only_file_system(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add([measurement()])
    store.close()

    def not_writable(_path: Path, mode: int) -> bool:
        return mode != os.W_OK

    monkeypatch.setattr(os, "access", not_writable)
    assert "read-only file system" in refused(store.path)
    store.path.parent.chmod(0o500)
    with open_store(store.path, readonly=True) as reader:
        assert len(measurements(reader, *KEY)) == 1
        assert list(store.path.parent.iterdir()) == [store.path]
    store.path.parent.chmod(0o700)


def test_a_read_only_file(store: SqliteStore) -> None:
    store.add([measurement()])
    with open_store(store.path, readonly=True) as reader:
        assert len(measurements(reader, *KEY)) == 1
        with pytest.raises(StoreError, match="for reading only"):
            reader.add([measurement()])


def test_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("dear diary, " * 100)
    assert "not an SQLite database" in refused(path)
    path.write_text("short")
    assert "not an SQLite database" in refused(path)


def test_a_foreign_database(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE photos (id)")
    other.close()
    assert "another program" in refused(path)
    with sqlite3.connect(path) as other:
        other.execute("DROP TABLE photos")
        other.execute("PRAGMA application_id = 77")
    other.close()
    assert "another program" in refused(path)


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    with pytest.raises(StoreError, match="is empty"):
        open_store(path, readonly=True)
    with open_store(path) as store:
        assert store.info().schema_version == schema.SCHEMA_VERSION


def _set_version(path: Path, version: str) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE meta SET value = ? WHERE name = 'schema_version'", (version,))
    raw.close()


def test_newer_and_unreadable_versions(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()
    _set_version(path, "99")
    assert "newer tilewright" in refused(path)
    assert "newer tilewright" in refused(path, readonly=True)
    _set_version(path, "one")
    assert "damaged" in refused(path)


def test_an_older_database_is_migrated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    with open_store(path) as store:
        store.add([measurement()])

    def add_column(connection: Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE workloads ADD COLUMN note TEXT")

    monkeypatch.setattr(schema, "SCHEMA_VERSION", OLDER + 1)
    monkeypatch.setattr(migrations, "MIGRATIONS", {OLDER + 1: add_column})
    before = path.read_bytes()
    with open_store(path, readonly=True) as store:
        assert store.info().path == str(path)
        assert store.info().schema_version == OLDER + 1, "of the copy that is read"
        assert len(measurements(store, *KEY)) == 1
    assert path.read_bytes() == before
    for _ in range(2):
        with open_store(path) as store:
            assert store.info().schema_version == OLDER + 1
            assert len(measurements(store, *KEY)) == 1


def test_a_locked_database(store: SqliteStore) -> None:
    store.add([measurement()])
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process") as caught:
        store.add([measurement()])
    assert "1 measurements" in caught.value.message
    assert len(measurements(store, *KEY)) == 1
    with open_store(store.path, busy_timeout_s=0.1) as second:
        assert len(measurements(second, *KEY)) == 1
    other.execute("COMMIT")
    other.close()
    store.add([measurement()])
    assert len(measurements(store, *KEY)) == 2


def test_creation_waits_for_a_lock_and_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        open_store(path, busy_timeout_s=0.1)
    other.execute("ROLLBACK")
    other.close()
    open_store(path).close()


def test_damaged_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path) as store:
        store.add([measurement(number=n) for n in range(600)])
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    content[half:] = b"\xa5" * (len(content) - half)
    path.write_bytes(content)
    with open_store(path) as store, pytest.raises(StoreError, match="damaged"):
        measurements(store, *KEY)


def test_a_damaged_row(store: SqliteStore) -> None:
    store.add([measurement()])
    with sqlite3.connect(store.path) as raw:
        raw.execute("UPDATE measurements SET samples_s = '[0.1'")
    raw.close()
    with pytest.raises(StoreError, match="table measurements cannot be read"):
        measurements(store, *KEY)


def test_a_table_that_is_gone(store: SqliteStore) -> None:
    with sqlite3.connect(store.path) as raw:
        raw.execute("DROP TABLE failures")
    raw.close()
    with pytest.raises(StoreError, match="no such table"):
        failures(store, *KEY)


def test_a_full_disk_loses_only_what_was_being_written(tmp_path: Path) -> None:
    connections = connect(tmp_path / "a.db", readonly=False, busy_timeout_s=1)

    @event.listens_for(connections.engine, "checkout")
    def limit(connection: sqlite3.Connection, *_rest: object) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.execute("PRAGMA max_page_count = 60")

    with SqliteStore(connections) as store:
        kept = 0
        with pytest.raises(StoreError, match="disk is full") as caught:
            for _ in range(1000):
                store.add([measurement(number=n) for n in range(20)])
                kept += 20
        assert kept > 0
        assert "Lost: adding 20 measurements" in caught.value.message
        assert "stored before is safe" in caught.value.message
        assert len(measurements(store, *KEY)) == kept


FILE_SIZE_LIMIT = """
import resource, sys
from pathlib import Path
from helpers.records.store_records import measurement
from tilewright.core.errors import StoreError
from tilewright.store import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
store = open_store(Path(sys.argv[1]))
try:
    for number in range(10_000):
        store.add([measurement(number=number)])
except StoreError as error:
    print(number)
    print(error.message)
"""


def test_a_file_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ended = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kept, message = ended.stdout.split("\n", 1)
    assert "cannot" in message
    assert "stored before is safe" in message
    with open_store(path) as store:
        assert len(measurements(store, *KEY)) == int(kept) > 0


def test_runs_that_cannot_be_updated(store: SqliteStore) -> None:
    run = Run(
        command="", model="", network_key="", device_class="", resources=ONE, seed=0, state=""
    )
    with pytest.raises(InternalError):
        store.update_run(run)
    with pytest.raises(StoreError, match="holds no run 5"):
        store.update_run(replace(run, id=5))
