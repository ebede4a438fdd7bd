"""The database as a stream of entries: the form in which records leave and enter it.

An entry is a JSON object: `record` says what it is (`tilewright` for the header, `device`,
`workload`, `run`, `measurement`, `failure`, `shipment`, `network`, `peak`), the rest are the
record's fields by name. Runs carry a `uid` that is the same in every database they are copied to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, Table, literal_column, select

from tilewright.core.codec import to_builtins
from tilewright.core.records import Device, Outcome, PlacementKey
from tilewright.store import schema
from tilewright.store.interchange.lines import Line
from tilewright.store.rows import KINDS, DamagedRow, Kind, Row, record_of

Entry = Row
BATCH_ROWS = 500


def matching(
    table: Table, placement: PlacementKey | None = None, **wanted: object
) -> Select[tuple[object, ...]]:
    """Rows of a table that agree with what is given, oldest first; None is not asked about."""
    if placement is not None:
        wanted |= {"device_class": placement.device_class}
        wanted |= {"resources": str(placement.resources)}
    asked = {name: value for name, value in wanted.items() if value is not None}
    return select(table).filter_by(**asked).order_by(table.c.created_at, table.c.id)


def stream_records(
    connection: Connection, kind: str, query: Select[Any] | None = None
) -> Iterator[Any]:
    """The records of a kind that a query finds, all in the order they came where there is none.
    Raises `DamagedRow`."""
    for row in _stream(connection, kind, query):
        yield record_of(KINDS[kind], row)


def stream_outcomes(connection: Connection) -> Iterator[Outcome]:
    """All measurements, then all failures, in the order they came."""
    yield from stream_records(connection, "measurement")
    yield from stream_records(connection, "failure")


def stream_entries(connection: Connection) -> Iterator[Entry]:
    """All records of a database, runs before what they measured. Raises `DamagedRow`."""
    for kind, row in _stream_all(connection):
        yield _entry(kind, row)


def stream_lines(connection: Connection) -> Iterator[Line]:
    """The same as lines of an import: of a row that cannot be read, why."""
    for number, (kind, row) in enumerate(_stream_all(connection), start=1):
        try:
            yield Line(number=number, record=_entry(kind, row))
        except DamagedRow as error:
            yield Line(number=number, reason=error.message)


def workload_texts(connection: Connection) -> dict[str, str]:
    """The text of every workload by its key."""
    return {row["key"]: row["text"] for row in _stream(connection, "workload")}


def device_facts(connection: Connection) -> dict[str, Device]:
    """One device of every class by its class key."""
    found: dict[str, Device] = {}
    for row in _stream(connection, "device"):
        found.setdefault(row["class_key"], record_of(KINDS["device"], row))
    return found


def _stream_all(connection: Connection) -> Iterator[tuple[Kind, RowMapping]]:
    """Every row, and what kind of record it holds."""
    for kind in KINDS.values():
        for row in _stream(connection, kind.name):
            yield kind, row


def _entry(kind: Kind, row: RowMapping) -> Entry:
    entry = {"record": kind.name, **to_builtins(record_of(kind, row))}
    return entry | {"uid": row["uid"]} if kind.table is schema.runs else entry


def _stream(
    connection: Connection, kind: str, query: Select[Any] | None = None
) -> Iterator[RowMapping]:
    if query is None:
        query = select(KINDS[kind].table).order_by(literal_column("rowid"))
    yield from connection.execute(query.execution_options(yield_per=BATCH_ROWS)).mappings()
