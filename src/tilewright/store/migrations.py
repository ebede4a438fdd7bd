"""Bringing the schema of a database to the version this tilewright writes.

A new file gets all tables at once. For an older one the numbered steps run in order, all within
one transaction: `MIGRATIONS[n]` turns version n-1 into version n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy import Connection

from tilewright.core.errors import StoreError
from tilewright.store import schema


def _add_instances(connection: Connection) -> None:
    """Version 2: outcomes name the device of their class that was used."""
    for table in ("measurements", "failures"):
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ADD COLUMN instance VARCHAR DEFAULT '' NOT NULL"
        )


def _add_plans(connection: Connection) -> None:
    """Version 3: shipments hold the layouts of their network."""
    connection.exec_driver_sql("ALTER TABLE shipments ADD COLUMN plan VARCHAR DEFAULT '' NOT NULL")


def _add_energy(connection: Connection) -> None:
    """Version 4: measurements hold energy, and whole networks have a table."""
    for column in schema.energy_columns():
        kind = column.type.compile(connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column.name} {kind}")
    schema.networks.create(connection)


MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {
    2: _add_instances,
    3: _add_plans,
    4: _add_energy,
}


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
