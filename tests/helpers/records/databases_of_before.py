"""Turning a database of today into what version 4 of its schema would have held."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from tilewright.core.codec import canonical_json
from tilewright.core.forms import PLAIN
from tilewright.core.records import Device
from tilewright.core.targets import Resources, parse_resources
from tilewright.graph.plan_fields import read_plan
from tilewright.hardware.legacy import class_of_before
from tilewright.store.known_candidates import shipping_key

_OUTCOMES = ("measurements", "failures")
_TABLES = (*_OUTCOMES, "runs", "shipments", "networks", "peaks")


def as_version_4(path: Path) -> None:
    """Rewrite the file: threads move into the classes of devices, plans are candidates and layouts
    again, and columns go."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT facts FROM devices").fetchall()
        devices = [msgspec.convert(json.loads(facts), Device) for (facts,) in rows]
        used = {
            (name, parse_resources(text))
            for table in _TABLES
            for name, text in connection.execute(f"SELECT device_class, resources FROM {table}")
        }
        connection.execute("DELETE FROM devices")
        for device in devices:
            for name, resources in used:
                if name == device.class_key:
                    _add_device(connection, device, resources)
        for name, resources in used:
            target = next(device.target for device in devices if device.class_key == name)
            for table in _TABLES:
                connection.execute(
                    f"UPDATE {table} SET device_class = ? WHERE device_class = ? AND resources = ?",
                    (class_of_before(target, resources), name, str(resources)),
                )
        _take_plans_apart(connection)
        _drop_columns(connection)
        connection.execute("UPDATE meta SET value = '4' WHERE name = 'schema_version'")
        connection.commit()


def _add_device(connection: sqlite3.Connection, device: Device, resources: Resources) -> None:
    target = device.target
    facts = {
        "class_key": class_of_before(target, resources),
        "instance": device.instance,
        "target": target.tvm_target(resources),
        "threads": resources.threads,
        "cpus": [],
        "cpu": {
            "model": target.model,
            "architecture": target.architecture,
            "features": target.features,
            "vector_bytes": target.vector_bytes,
            "vector_registers": target.vector_registers,
            **{f"l{level}_bytes": target.cache_bytes(level) for level in (1, 2, 3)},
            "physical_cores": target.cores,
        },
    }
    row = (facts["class_key"], device.instance, canonical_json(facts))
    connection.execute("INSERT INTO devices VALUES (?, ?, ?)", row)


def _take_plans_apart(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE shipments ADD COLUMN assignment VARCHAR DEFAULT '' NOT NULL")
    connection.execute("ALTER TABLE shipments ADD COLUMN artifact_hash VARCHAR DEFAULT '' NOT NULL")
    for number, text in connection.execute("SELECT id, plan FROM shipments").fetchall():
        plan = read_plan(json.loads(text))
        assignment = {shipping_key(key): found for key, found in plan.candidates.items()}
        forms = {name: tensor.form for name, tensor in plan.tensors.items()}
        layouts = {"layouts": {name: str(form) for name, form in forms.items() if form != PLAIN}}
        connection.execute(
            "UPDATE shipments SET assignment = ?, plan = ? WHERE id = ?",
            (canonical_json(assignment), canonical_json(layouts), number),
        )


def _drop_columns(connection: sqlite3.Connection) -> None:
    indexes = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%resources%'"
    ).fetchall()
    for (name,) in indexes:
        connection.execute(f"DROP INDEX {name}")
    for table in _TABLES:
        connection.execute(f"ALTER TABLE {table} DROP COLUMN resources")
        if table in _OUTCOMES:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN binding")
