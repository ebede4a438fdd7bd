"""The database as a stream of entries: the form in which records leave and enter it.

An entry is a JSON object: `record` says what it is (`tilewright` for the header, `device`,
`workload`, `run`, `measurement`, `failure`, `shipment`, `network`, `peak`), the rest are the
record's fields by name. Runs carry a `uid` that is the same in every database they are copied to.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, RowMapping, Select, Table, select

from tilewright.core.records import Device, Measurement, Outcome
from tilewright.store import rows, schema
from tilewright.store.selection import select_measurements

Entry = rows.Row
BATCH_ROWS = 500


def header() -> Entry:
    """The first entry of an export."""
    return {"record": "tilewright", "schema_version": schema.SCHEMA_VERSION}


def unreadable_version(version: object) -> str:
    """Why an export of this schema version cannot be read, empty when it can."""
    if isinstance(version, bool) or not isinstance(version, int):
        return "the header has no schema_version"
    if version > schema.SCHEMA_VERSION:
        return f"made by a newer tilewright (schema version {version}); update tilewright"
    return ""


def stream_entries(connection: Connection) -> Iterator[Entry]:
    """All records of a database, runs before what they measured."""
    for row in _stream(connection, select(schema.devices)):
        yield {"record": "device", **rows.plain(rows.device(row))}
    for row in _stream(connection, select(schema.workloads)):
        yield {"record": "workload", **row}
    for row in _stream(connection, _in_order(schema.runs)):
        yield {"record": "run", "uid": row["uid"], **rows.plain(rows.run(row))}
    for row in _stream(connection, _in_order(schema.measurements)):
        yield {"record": "measurement", **rows.plain(rows.measurement(row))}
    for row in _stream(connection, _in_order(schema.failures)):
        yield {"record": "failure", **rows.plain(rows.failure(row))}
    for row in _stream(connection, _in_order(schema.shipments)):
        yield {"record": "shipment", **rows.plain(rows.shipment(row))}
    for row in _stream(connection, _in_order(schema.networks)):
        yield {"record": "network", **rows.plain(rows.network(row))}
    for row in _stream(connection, _in_order(schema.peaks)):
        yield {"record": "peak", **rows.plain(rows.peak(row))}


def stream_measurements(connection: Connection) -> Iterator[list[Measurement]]:
    """All measurements in batches, oldest first."""
    query = select_measurements().execution_options(yield_per=BATCH_ROWS)
    for batch in connection.execute(query).mappings().partitions():
        yield [rows.measurement(row) for row in batch]


def stream_outcomes(connection: Connection) -> Iterator[Outcome]:
    """All measurements, then all failures, in the order they came."""
    for row in _stream(connection, _in_order(schema.measurements)):
        yield rows.measurement(row)
    for row in _stream(connection, _in_order(schema.failures)):
        yield rows.failure(row)


def workload_texts(connection: Connection) -> dict[str, str]:
    """The text of every workload by its key."""
    table = schema.workloads
    return {row["key"]: row["text"] for row in _stream(connection, select(table))}


def device_facts(connection: Connection) -> dict[str, Device]:
    """One device of every class by its class key."""
    found: dict[str, Device] = {}
    for row in _stream(connection, select(schema.devices)):
        found.setdefault(row["class_key"], rows.device(row))
    return found


def _in_order(table: Table) -> Select[tuple[object, ...]]:
    return select(table).order_by(table.c.id)


def _stream(connection: Connection, query: Select[tuple[object, ...]]) -> Iterator[RowMapping]:
    yield from connection.execute(query.execution_options(yield_per=BATCH_ROWS)).mappings()
