"""Bringing the schema of a database to the version this tilewright writes.

A new file gets all tables at once. For an older one the numbered steps run in order, all within
one transaction: `MIGRATIONS[n]` turns version n-1 into version n.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    RowMapping,
    Table,
    bindparam,
    delete,
    insert,
    inspect,
    select,
    update,
)

from tilewright.core.codec import canonical_json
from tilewright.core.errors import StoreError
from tilewright.hardware.legacy import ClassesOfBefore
from tilewright.store import known_candidates, rows, schema

_BATCH_ROWS = 2000
_OUTCOMES = (schema.measurements, schema.failures)


def _add_energy(connection: Connection) -> None:
    """Version 4: measurements hold energy, and whole networks have a table."""
    for column in schema.energy_columns():
        kind = column.type.compile(connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column.name} {kind}")
    schema.networks.create(connection)


def _add_resources(connection: Connection) -> None:
    """Version 5: classes of devices know no threads; all times name the resources they took."""
    classes = ClassesOfBefore()
    known = connection.execute(select(schema.devices).order_by("class_key", "instance"))
    devices = [_carried_device(row, classes) for row in known.mappings()]
    connection.execute(delete(schema.devices))
    if devices:
        connection.execute(insert(schema.devices).prefix_with("OR REPLACE"), devices)
    named_tables = (*_OUTCOMES, schema.runs, schema.shipments, schema.networks, schema.peaks)
    _add_texts(connection, "resources", *named_tables)
    for name in ("binding", "model"):
        _add_texts(connection, name, *_OUTCOMES)
    for table in named_tables:
        named = connection.exec_driver_sql(f"SELECT DISTINCT device_class FROM {table.name}")
        for before in list(named.scalars()):
            found = classes.of(before)
            connection.exec_driver_sql(
                f"UPDATE {table.name} SET device_class = ?, resources = ? "
                "WHERE device_class = ? AND resources = ''",
                (found.device_class, str(found.resources), before),
            )
        for index in table.indexes:
            connection.exec_driver_sql(f"DROP INDEX IF EXISTS {index.name}")
            index.create(connection)
        if "content" in table.c:
            _hash_anew(connection, table)


def _add_network_plans(connection: Connection) -> None:
    """Version 6: shipments hold one plan, where they had candidates and forms."""
    known = connection.exec_driver_sql("SELECT id, assignment, plan FROM shipments")
    for number, assignment, layouts in list(known):
        try:
            plan = known_candidates.plan_of_before(
                json.loads(assignment), json.loads(layouts or "{}")
            )
        except ValueError:
            plan = {"assignment": assignment}  # it cannot be read, and is told of when it is asked
        connection.exec_driver_sql(
            "UPDATE shipments SET plan = ? WHERE id = ?", (canonical_json(plan), number)
        )
    for name in ("assignment", "artifact_hash"):
        connection.exec_driver_sql(f"ALTER TABLE shipments DROP COLUMN {name}")
    _hash_anew(connection, schema.shipments)


def _carried_device(row: RowMapping, classes: ClassesOfBefore) -> rows.Row:
    """The row of a device of before; one that cannot be read stays as it is."""
    try:
        fields = msgspec.json.decode(row["facts"], type=dict[str, Any])
        return rows.row_of(classes.read(fields))
    except ValueError:
        return dict(row)


def _add_texts(connection: Connection, name: str, *tables: Table) -> None:
    """Add a column of texts to tables, where an earlier step did not create them with it."""
    for table in tables:
        if name not in {column["name"] for column in inspect(connection).get_columns(table.name)}:
            connection.exec_driver_sql(
                f"ALTER TABLE {table.name} ADD COLUMN {name} VARCHAR DEFAULT '' NOT NULL"
            )


def _hash_anew(connection: Connection, table: Table) -> None:
    """Content hashes for what the rows say now."""
    last = 0
    while True:
        query = select(table).where(table.c.id > last).order_by(table.c.id).limit(_BATCH_ROWS)
        batch = [dict(row) for row in connection.execute(query).mappings()]
        if not batch:
            return
        last = batch[-1]["id"]
        hashed = [{"of": row["id"], "hash": rows.with_content(row)["content"]} for row in batch]
        connection.execute(
            update(table).where(table.c.id == bindparam("of")).values(content=bindparam("hash")),
            hashed,
        )


MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {
    2: lambda connection: _add_texts(connection, "instance", *_OUTCOMES),
    3: lambda connection: _add_texts(connection, "plan", schema.shipments),
    4: _add_energy,
    5: _add_resources,
    6: _add_network_plans,
    7: lambda connection: _add_texts(connection, "model", *_OUTCOMES),
}
"""Version 2: outcomes name the device of their class that was used. Version 3: shipments hold the
layouts of their network. Version 7: outcomes name the network they were measured for. The others
say themselves what they are for."""


def schema_version(connection: Connection, path: Path) -> int:
    """The version a database was written with, 0 for an empty one.

    Raises `StoreError` for a file that is not ours or was made by a newer tilewright.
    """
    application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if application == 0 and tables == 0:
        return 0
    if application != schema.APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite database of another program, not of tilewright; left untouched.",
            hint="Choose another file with --db PATH.",
        )
    value = connection.exec_driver_sql(
        "SELECT value FROM meta WHERE name = 'schema_version'"
    ).scalar()
    if not isinstance(value, str) or not value.isdecimal():
        raise StoreError(
            f"{path} holds no readable schema version; it is damaged.",
            hint="Restore a copy, or choose another file with --db PATH.",
        )
    if int(value) > schema.SCHEMA_VERSION:
        raise StoreError(
            f"{path} was made by a newer tilewright (schema version {value}, this one knows up to "
            f"{schema.SCHEMA_VERSION}); left untouched.",
            hint="Update tilewright, or choose another file with --db PATH.",
        )
    return int(value)


def bring_up_to_date(connection: Connection, path: Path) -> None:
    """Create or migrate the tables; run it inside a writing transaction."""
    version = schema_version(connection, path)
    if version == schema.SCHEMA_VERSION:
        return
    if version == 0:
        schema.metadata.create_all(connection)
        connection.exec_driver_sql(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    else:
        for number in range(version + 1, schema.SCHEMA_VERSION + 1):
            MIGRATIONS[number](connection)
    connection.exec_driver_sql(
        "INSERT OR REPLACE INTO meta (name, value) VALUES ('schema_version', ?)",
        (str(schema.SCHEMA_VERSION),),
    )
