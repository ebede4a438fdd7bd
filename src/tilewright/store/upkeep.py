"""What a database holds, and removing what is of no more use."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import CompoundSelect, Connection, Table, delete, func, select, union

from tilewright.store import schema
from tilewright.store.base import DatabaseInfo, Removed
from tilewright.store.connections import Connections
from tilewright.store.migrations import schema_version


def info(connections: Connections) -> DatabaseInfo:
    """Count everything in one consistent state."""
    measured, failed = schema.measurements.c, schema.failures.c
    classes = union(
        select(schema.devices.c.class_key),
        select(measured.device_class),
        select(failed.device_class),
    )
    tasks = union(
        select(schema.workloads.c.key), select(measured.workload_key), select(failed.workload_key)
    )
    with connections.reading() as connection:
        return DatabaseInfo(
            path=connections.path,
            schema_version=schema_version(connection, connections.path),
            measurements=_count(connection, schema.measurements),
            failures=_count(connection, schema.failures),
            devices=_distinct(connection, classes),
            tasks=_distinct(connection, tasks),
            runs=_count(connection, schema.runs),
            size_bytes=_size_bytes(connections.path),
        )


def collect_garbage(
    connections: Connections, keep_versions: frozenset[str], failures_older_than_s: float | None
) -> Removed:
    """See `SqliteStore.gc`."""
    before_bytes = _size_bytes(connections.path)
    table = schema.measurements
    newest = (
        func.first_value(table.c.kernel_hash)
        .over(
            partition_by=(
                table.c.workload_key,
                table.c.device_class,
                table.c.resources,
                table.c.implementation,
                table.c.settings,
                table.c.layouts,
            ),
            order_by=(table.c.created_at.desc(), table.c.id.desc()),
        )
        .label("newest")
    )
    ranked = select(table.c.id, table.c.kernel_hash, table.c.versions, newest).subquery()
    superseded = select(ranked.c.id).where(
        ranked.c.kernel_hash != ranked.c.newest, ranked.c.versions.not_in(keep_versions)
    )
    failures = 0
    with connections.writing("removing superseded measurements") as connection:
        measurements = connection.execute(delete(table).where(table.c.id.in_(superseded))).rowcount
        if failures_older_than_s is not None:
            limit = time.time() - failures_older_than_s
            old = delete(schema.failures).where(schema.failures.c.created_at < limit)
            failures = connection.execute(old).rowcount
    with connections.outside_transactions("shrinking the file") as connection:
        connection.exec_driver_sql("VACUUM")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return Removed(
        measurements=measurements,
        failures=failures,
        freed_bytes=max(0, before_bytes - _size_bytes(connections.path)),
    )


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _distinct(connection: Connection, keys: CompoundSelect[str]) -> int:
    return connection.execute(select(func.count()).select_from(keys.subquery())).scalar_one()


def _size_bytes(path: Path) -> int:
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
