"""Records to rows of the tables and back, exactly.

Each kind of record has a table. A column holds the field of its name, but for those of two parts of
a record, its candidate and its energy, whose fields are columns of their own. Values that are no
scalars are kept as JSON text: integers, strings and booleans of settings come back with their
types, floats with every bit.

Records leave and enter a database as entries. An entry is a JSON object: `record` says what it is
(`tilewright` for the header, `device`, `workload`, `run`, `measurement`, `failure`, `shipment`,
`network`, `peak`), the rest are the record's fields by name. Runs carry a `uid` that is the same in
every database they are copied to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, literal_column, select

from tilewright.core import errors, records
from tilewright.core.codec import canonical_json, convert, digest, to_builtins
from tilewright.core.targets import Binding, Resources, parse_resources
from tilewright.store import schema

Row = dict[str, Any]
Entry = Row
R = TypeVar("R")
BATCH_ROWS = 500
_IDS = ("id", "uid", "content")
_LOCAL_FIELDS = ("run_id", "id", "content")
ENERGY = {
    **{name: name for name in ("energy_j", "power_w", "idle_power_w")},
    **{f"energy_{name}": name for name in ("method", "reason", "samples_j", "runs", "window_s")},
}
"""The columns of measured energy, and which field each holds; without a method there is none."""
_CANDIDATE = ("implementation", "settings", "layouts")
_LATER_FIELDS = ("instance", "binding", "model", *ENERGY)
_SPECIAL = ("neighbours", "held")
"""Fields of protocols that are left out where they are 0 or empty, so that older rows keep their
hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A measured limit of a device class with some of its resources; the unit is in the name
    (`flop_per_s`)."""

    device_class: str
    resources: Resources
    name: str
    value: float
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadText:
    """The text that a workload is rebuilt from, by the workload's key."""

    key: str
    text: str


KINDS: Mapping[str, type[Any]] = {
    "device": records.Device,
    "workload": WorkloadText,
    "run": records.Run,
    "measurement": records.Measurement,
    "failure": records.Failure,
    "shipment": records.ShippedPlan,
    "network": records.NetworkMeasurement,
    "peak": Peak,
}
"""The kinds of records by their names in exports, in the order of exports: runs come before what
they measured."""
TABLES: Mapping[type[Any], Table] = {
    records.Device: schema.devices,
    WorkloadText: schema.workloads,
    records.Run: schema.runs,
    records.Measurement: schema.measurements,
    records.Failure: schema.failures,
    records.ShippedPlan: schema.shipments,
    records.NetworkMeasurement: schema.networks,
    Peak: schema.peaks,
}


class DamagedRow(errors.StoreError):
    """A row that holds no record; the message says in which table, and why."""


def row_of(record: object) -> Row:
    """The row of a record, without ids that differ from database to database."""
    row = columns_of(record)
    return with_content(row) if "content" in TABLES[type(record)].c else row


def columns_of(record: object) -> Row:
    """The same without the hash of its content."""
    plain: Row = to_builtins(convert(to_builtins(record), type(record)))
    energy: Row = plain.get("energy") or {}
    values = {
        **plain,
        **plain.get("candidate", {}),
        **{column: energy.get(name) for column, name in ENERGY.items()},
        "facts": plain,
    }
    names = (str(column.name) for column in TABLES[type(record)].columns)
    return {name: _cell(name, values[name]) for name in names if name not in _IDS}


def record_of(kind: type[R], row: RowMapping) -> R:
    """The record of this kind in a row of its table. Raises `DamagedRow`."""
    try:
        known = {
            str(name): cell if cell is None or name not in _READ else _READ[name](cell)
            for name, cell in row.items()
        }
        if "facts" in known:
            return convert(known["facts"], kind)
        found = convert(known | parts_of(known), kind)
        if isinstance(found, records.Measurement) and not has_samples(found):
            raise ValueError("its samples are no finite numbers")
        return found
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRow(
            f"a row of the table {TABLES[kind].name} cannot be read ({error}): {dict(row)!r:.200}"
        ) from error


def parts_of(values: Mapping[str, Any]) -> Row:
    """The candidate and the energy of a record, from the values of their columns."""
    energy = {name: values.get(column) for column, name in ENERGY.items()}
    return {
        "candidate": {name: values.get(name) for name in _CANDIDATE},
        "energy": None if energy["method"] is None else energy,
    }


def has_samples(measurement: records.Measurement) -> bool:
    """Whether there are samples, and all of them are finite."""
    return bool(measurement.samples_s) and all(map(math.isfinite, measurement.samples_s))


def with_content(row: Row) -> Row:
    """Add the hash of what a row says, without ids that differ from database to database.

    An empty `instance`, `binding`, `model` or energy does not count: rows of before those columns
    keep their hash.
    """
    known = {
        name: value
        for name, value in row.items()
        if name not in _LOCAL_FIELDS and (value or name not in _LATER_FIELDS)
    }
    return row | {"content": digest(canonical_json(known), length=32)}


def _cell(name: str, value: Any) -> Any:
    """What a column holds of a value."""
    if value is not None and name in _WRITE:
        value = _WRITE[name](value)
    # lone surrogates (undecodable bytes of a log) are escaped, since SQLite refuses them
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def read_binding(text: str) -> Binding:
    """The CPUs that a column lists. Raises ValueError where it lists none."""
    return Binding(cpus=tuple(int(cpu) for cpu in text.split(",") if cpu))


_JSON = ("settings", "layouts", "samples_s", "energy_samples_j", "plan", "numbers", "facts")
_WRITE: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(_JSON, canonical_json),
    "protocol": lambda fields: canonical_json(
        {name: value for name, value in fields.items() if name not in _SPECIAL or value}
    ),
    "resources": lambda fields: str(Resources(**fields)),
    "binding": lambda fields: ",".join(map(str, fields["cpus"])),
    "seed": str,
}
_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys((*_JSON, "protocol"), json.loads),
    "resources": parse_resources,
    "binding": read_binding,
    "seed": int,
}
"""How values that are no scalars become text, and the text such values. A seed is text, since it
may exceed 64 bits."""


def matching(
    table: Table, placement: records.PlacementKey | None = None, **wanted: object
) -> Select[tuple[object, ...]]:
    """Rows of a table that agree with what is given, oldest first; None is not asked about."""
    if placement is not None:
        wanted |= {"device_class": placement.device_class}
        wanted |= {"resources": str(placement.resources)}
    asked = {name: value for name, value in wanted.items() if value is not None}
    return select(table).filter_by(**asked).order_by(table.c.created_at, table.c.id)


def stream_records(
    connection: Connection, kind: type[R], query: Select[Any] | None = None
) -> Iterator[R]:
    """The records of a kind that a query finds, all in the order they came where there is none.
    Raises `DamagedRow`."""
    return (record_of(kind, row) for row in _stream(connection, kind, query))


def stream_outcomes(connection: Connection) -> Iterator[records.Outcome]:
    """All measurements, then all failures, in the order they came."""
    kinds = (records.Measurement, records.Failure)
    return chain.from_iterable(stream_records(connection, kind) for kind in kinds)


def workload_texts(connection: Connection) -> dict[str, str]:
    """The text of every workload by its key."""
    return {row["key"]: row["text"] for row in _stream(connection, WorkloadText)}


def device_facts(connection: Connection) -> dict[str, records.Device]:
    """One device of every class by its class key."""
    found: dict[str, records.Device] = {}
    for device in stream_records(connection, records.Device):
        found.setdefault(device.class_key, device)
    return found


def stream_rows(connection: Connection) -> Iterator[tuple[str, RowMapping]]:
    """Every row of a database, runs before what they measured, and what kind of record it holds."""
    return ((name, row) for name, kind in KINDS.items() for row in _stream(connection, kind))


def entry_of(name: str, row: RowMapping) -> Entry:
    """The entry of an export for a row of a kind of records. Raises `DamagedRow`."""
    entry = {"record": name, **to_builtins(record_of(KINDS[name], row))}
    return entry | {"uid": row["uid"]} if name == "run" else entry


def _stream(
    connection: Connection, kind: type[Any], query: Select[Any] | None = None
) -> Iterator[RowMapping]:
    if query is None:
        query = select(TABLES[kind]).order_by(literal_column("rowid"))
    yield from connection.execute(query.execution_options(yield_per=BATCH_ROWS)).mappings()
