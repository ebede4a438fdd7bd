"""Databases of earlier schema versions open, and keep what they hold."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.records.store_records import (
    CPU_A,
    ONE,
    failure,
    measurement,
    measurements,
    shipped_plan,
    without_plans,
)
from tilewright.core.errors import StoreError
from tilewright.core.records import EnergyUse, NetworkMeasurement
from tilewright.store import open_store
from tilewright.store.interchange.tables import to_frame
from tilewright.store.known_candidates import candidates_of
from tilewright.store.schema import energy_columns

PLAIN_PLAN = {"assignment": shipped_plan().plan["assignment"]}


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    """A database without the columns `instance`, `binding`, `resources` and `plan`, energy and
    networks, as version 1 wrote it."""
    path = tmp_path / "old.db"
    with open_store(path) as store:
        store.add([measurement(), failure()])
        store.ship(replace(shipped_plan(), plan=PLAIN_PLAN))
    connection = sqlite3.connect(path)
    without_plans(connection)
    connection.execute("DROP TABLE networks")
    for column in energy_columns():
        connection.execute(f"ALTER TABLE measurements DROP COLUMN {column.name}")
    connection.execute("ALTER TABLE shipments DROP COLUMN plan")
    for index in ("measurements_by_task", "failures_by_task", "runs_by_network", "peaks_by_name"):
        connection.execute(f"DROP INDEX {index}")
    connection.execute("DROP INDEX shipments_by_network")
    for table in ("measurements", "failures", "runs", "shipments", "peaks"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN resources")
    for table in ("measurements", "failures"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN instance")
        connection.execute(f"ALTER TABLE {table} DROP COLUMN binding")
    connection.execute("UPDATE meta SET value = '1' WHERE name = 'schema_version'")
    connection.commit()
    connection.close()
    return path


def test_version_1_is_brought_up_to_date(first_version: Path, tmp_path: Path) -> None:
    one = measurement()
    with open_store(first_version) as store:
        assert measurements(store, one.workload_key, one.placement_key) == [one]
        named = replace(one, instance="rpc:box@10.0.0.5:9090")
        store.add([named])
        found = measurements(store, one.workload_key, one.placement_key)
        assert {m.instance for m in found} == {"", named.instance}
        assert set(to_frame(store.stored_measurements())["instance"]) == {"", named.instance}
        used = replace(one, energy=EnergyUse(method="none", reason="no sensor"))
        store.add([used])
        assert used in measurements(store, one.workload_key, one.placement_key)
        network = NetworkMeasurement(
            network_key="net",
            device_class="cpu-a",
            resources=ONE,
            model="m",
            latency_s=0.5,
            planned_bytes=7,
        )
        store.add_network(network)
        assert store.networks("net", CPU_A) == [network]
        shipped = replace(shipped_plan(), plan=PLAIN_PLAN)
        assert store.shipped(shipped.network_key, CPU_A) == shipped
    with open_store(tmp_path / "new.db") as store:
        store.add([one, failure()])
        store.ship(shipped)
        taken = store.merge(first_version)
        assert taken.measurements == 2 and taken.failures == 0
        assert _shipments(tmp_path / "new.db") == 1


def test_version_5_had_candidates_and_layouts_where_there_is_a_plan(tmp_path: Path) -> None:
    shipped = shipped_plan()
    with open_store(tmp_path / "a.db") as store:
        store.ship(shipped)
        store.export(tmp_path / "new.jsonl")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        without_plans(connection)
        connection.execute("UPDATE meta SET value = '5' WHERE name = 'schema_version'")
        connection.commit()
    with open_store(tmp_path / "a.db") as store:
        assert store.shipped(shipped.network_key, CPU_A) == shipped
        assert candidates_of(shipped)["conv2d-1@plain"].implementation == "direct"
    with open_store(tmp_path / "b.db") as other:
        for _ in range(2):
            other.merge(tmp_path / "a.db")
            other.import_file(tmp_path / "new.jsonl")
            assert other.shipped(shipped.network_key, CPU_A) == shipped
            assert _shipments(tmp_path / "b.db") == 1


def test_exports_of_version_5_are_carried_over(tmp_path: Path) -> None:
    shipped = shipped_plan()
    with open_store(tmp_path / "a.db") as store:
        store.ship(shipped)
        store.export(tmp_path / "a.jsonl")
        header, line = (tmp_path / "a.jsonl").read_text().splitlines()
        entry = json.loads(line)
        plan = entry.pop("plan")
        entry |= {"assignment": plan.pop("assignment"), "plan": plan, "artifact_hash": "a1"}
        texts = [header, json.dumps(entry), json.dumps(entry | {"assignment": [1]})]
        (tmp_path / "old.jsonl").write_text("\n".join(texts))
        taken = store.import_file(tmp_path / "old.jsonl")
        assert (taken.known, len(taken.skipped)) == (1, 1)
        assert store.shipped(shipped.network_key, CPU_A) == shipped


def test_a_plan_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = replace(shipped_plan(), plan={"calls": [{"name": "conv"}]})
    with pytest.raises(StoreError, match="the plan that shipped for zoo:one cannot be read"):
        candidates_of(broken)


def _shipments(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM shipments").fetchone()
    return count


def test_version_6_did_not_name_the_network_of_an_outcome(tmp_path: Path) -> None:
    path, outcomes = tmp_path / "a.db", [measurement(), failure()]
    with open_store(path) as store:
        store.add(outcomes)
        store.export(tmp_path / "before.jsonl")
    with closing(sqlite3.connect(path)) as connection:
        for table in ("measurements", "failures"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN model")
        connection.execute("UPDATE meta SET value = '6' WHERE name = 'schema_version'")
        connection.commit()
    with open_store(path) as store:
        store.import_file(tmp_path / "before.jsonl")
        assert [one.model for one in store.outcomes("conv2d-1", CPU_A)] == ["", ""]
        named = replace(measurement(), model="zoo:one")
        store.add([named])
        store.export(tmp_path / "now.csv")
    with open_store(tmp_path / "b.db") as other:
        assert other.import_file(tmp_path / "now.csv").imported == 2
        assert [one.model for one in measurements(other, "conv2d-1", CPU_A)] == ["", "zoo:one"]
