"""The database as a stream of entries: the form in which records leave and enter it.

An entry is a JSON object: `record` says what it is (`tilewright` for the header, `device`,
`workload`, `run`, `measurement`, `failure`, `shipment`, `network`, `peak`), the rest are the
record's fields by name. Runs carry a `uid` that is the same in every database they are copied to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sqlalchemy import Connection, RowMapping, Select, Table, select

from tilewright.core.records import Device, Measurement, Outcome
from tilewright.store import rows, schema
from tilewright.store.interchange.lines import Line
from tilewright.store.selection import select_measurements

Entry = rows.Row
BATCH_ROWS = 500
_IN_ORDER = (
    (schema.runs, "run"),
    (schema.measurements, "measurement"),
    (schema.failures, "failure"),
    (schema.shipments, "shipment"),
    (schema.networks, "network"),
    (schema.peaks, "peak"),
)
_READ: Mapping[str, Callable[[RowMapping], object]] = {
    "device": rows.device,
    "run": rows.run,
    "measurement": rows.measurement,
    "failure": rows.failure,
    "shipment": rows.shipped,
    "network": rows.network,
    "peak": rows.peak,
}


def stream_entries(connection: Connection) -> Iterator[Entry]:
    """All records of a database, runs before what they measured. Raises `DamagedRow`."""
    for kind, row in _stream_rows(connection):
        yield _entry(kind, row)


def stream_lines(connection: Connection) -> Iterator[Line]:
    """The same as lines of an import: of a row that cannot be read, why."""
    for number, (kind, row) in enumerate(_stream_rows(connection), start=1):
        try:
            yield Line(number=number, record=_entry(kind, row))
        except rows.DamagedRow as error:
            yield Line(number=number, reason=error.message)


def _stream_rows(connection: Connection) -> Iterator[tuple[str, RowMapping]]:
    """Every row, and what kind of record it holds."""
    for row in _stream(connection, select(schema.devices)):
        yield "device", row
    for row in _stream(connection, select(schema.workloads)):
        yield "workload", row
    for table, kind in _IN_ORDER:
        for row in _stream(connection, _in_order(table)):
            yield kind, row


def _entry(kind: str, row: RowMapping) -> Entry:
    if kind == "workload":
        return {"record": kind, **row}
    entry = {"record": kind, **rows.plain(_READ[kind](row))}
    return entry | {"uid": row["uid"]} if kind == "run" else entry


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
