"""Which measurements a question is about."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select

from tilewright.store import schema


def select_measurements(
    *,
    workload_key: str | None = None,
    device_class: str | None = None,
    implementation: str | None = None,
    run_id: int | None = None,
) -> Select[Any]:
    """Rows of `measurements` that agree with what is given, oldest first."""
    table = schema.measurements
    query = select(table).order_by(table.c.created_at, table.c.id)
    wanted = {
        "workload_key": workload_key,
        "device_class": device_class,
        "implementation": implementation,
        "run_id": run_id,
    }
    for name, value in wanted.items():
        if value is not None:
            query = query.where(table.c[name] == value)
    return query
