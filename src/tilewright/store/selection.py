"""Which measurements a question is about."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, select

from tilewright.core.records import PlacementKey
from tilewright.store import schema


def at(table: Table, placement: PlacementKey) -> ColumnElement[bool]:
    """Rows of a class of devices with these resources."""
    return and_(
        table.c.device_class == placement.device_class,
        table.c.resources == str(placement.resources),
    )


def select_measurements(
    *,
    workload_key: str | None = None,
    placement: PlacementKey | None = None,
    implementation: str | None = None,
    run_id: int | None = None,
) -> Select[Any]:
    """Rows of `measurements` that agree with what is given, oldest first."""
    table = schema.measurements
    query = select(table).order_by(table.c.created_at, table.c.id)
    if placement is not None:
        query = query.where(at(table, placement))
    wanted = {
        "workload_key": workload_key,
        "implementation": implementation,
        "run_id": run_id,
    }
    for name, value in wanted.items():
        if value is not None:
            query = query.where(table.c[name] == value)
    return query
