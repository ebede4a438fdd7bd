"""Databases of earlier schema versions open, and keep what they hold."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_records import failure, measurement

from tilewright.store import open_store


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    """A database without the column `instance`, as version 1 wrote it."""
    path = tmp_path / "old.db"
    with open_store(path) as store:
        store.add([measurement(), failure()])
    connection = sqlite3.connect(path)
    for table in ("measurements", "failures"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN instance")
    connection.execute("UPDATE meta SET value = '1' WHERE name = 'schema_version'")
    connection.commit()
    connection.close()
    return path


def test_version_1_is_brought_up_to_date(first_version: Path, tmp_path: Path) -> None:
    one = measurement()
    with open_store(first_version) as store:
        assert store.measurements(one.workload_key, one.device_class) == [one]
        named = replace(one, instance="rpc:box@10.0.0.5:9090")
        store.add([named])
        found = store.measurements(one.workload_key, one.device_class)
        assert {m.instance for m in found} == {"", named.instance}
        assert set(store.frame()["instance"]) == {"", named.instance}
    with open_store(tmp_path / "new.db") as store:
        store.add([one, failure()])
        taken = store.merge(first_version)
        assert taken.measurements == 1 and taken.failures == 0
