"""Taking entries of another database or an export into this one, each record once.

Equal records are told by their content: after taking in a source that holds a record m times,
a database that held it k times holds it max(k, m) times, so doing it twice changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import Connection, Table, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from tilewright.core.fingerprints import digest
from tilewright.core.records import Device, Failure, Measurement, Run, Shipment
from tilewright.store import rows, schema
from tilewright.store.entries import BATCH_ROWS, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """How many records were new, by kind, and how many were already there (`known`)."""

    measurements: int = 0
    failures: int = 0
    devices: int = 0
    workloads: int = 0
    runs: int = 0
    shipments: int = 0
    peaks: int = 0
    known: int = 0


class BadEntry(ValueError):
    """An entry is malformed; the message says how."""


@dataclass(slots=True, kw_only=True)
class Intake:
    """The state of one import, all of it inside one writing transaction."""

    connection: Connection
    run_ids: dict[int, int] = field(default_factory=dict[int, int])
    added: Counter[str] = field(default_factory=Counter[str])
    present: Counter[str] = field(default_factory=Counter[str])
    taken: Counter[str] = field(default_factory=Counter[str])
    waiting: list[tuple[Table, rows.Row]] = field(default_factory=list[tuple[Table, rows.Row]])

    def take_all(self, entries: Iterable[Entry]) -> Imported:
        """Take in all entries. Raises `BadEntry` with what is wrong."""
        for entry in entries:
            self.take(entry)
        self._flush()
        return Imported(**self.added)

    def take(self, entry: Entry) -> None:
        """Take in one entry. Raises `BadEntry` with what is wrong."""
        fields = {name: value for name, value in entry.items() if name != "record"}
        try:
            match entry.get("record"):
                case "tilewright":
                    _check_version(fields)
                case "device":
                    device = msgspec.convert(fields, Device)
                    self._keep_first(schema.devices, rows.device_row(device))
                case "workload":
                    self._keep_first(schema.workloads, _workload_row(fields))
                case "run":
                    self._take_run(fields)
                case _:
                    self._queue(*_content_row(entry.get("record"), fields, self.run_ids))
        except msgspec.ValidationError as error:
            raise BadEntry(str(error)) from error
        except OverflowError as error:
            raise BadEntry("a number is out of range") from error
        except UnicodeError as error:
            raise BadEntry("a text holds half a character") from error

    def _keep_first(self, table: Table, row: rows.Row) -> None:
        query = upsert(table).values(row).on_conflict_do_nothing()
        fresh = self.connection.execute(query).rowcount > 0
        self.added[table.name if fresh else "known"] += 1

    def _take_run(self, fields: Entry) -> None:
        uid = fields.pop("uid", None)
        run = msgspec.convert(fields, Run)
        if not isinstance(uid, str) or run.id is None:
            raise BadEntry("a run needs an id and a uid")
        row = _checked(rows.run_row(run))
        table = schema.runs
        known = self.connection.execute(
            select(table.c.id, table.c.spent_s).where(table.c.uid == uid)
        ).one_or_none()
        if known is None:
            result = self.connection.execute(insert(table), row | {"uid": uid})
            if result.inserted_primary_key:
                self.run_ids[run.id] = result.inserted_primary_key[0]
            self.added["runs"] += 1
            return
        self.run_ids[run.id] = known.id
        self.added["known"] += 1
        if run.spent_s > known.spent_s:
            self.connection.execute(update(table).where(table.c.id == known.id).values(row))

    def _queue(self, table: Table, row: rows.Row) -> None:
        self.waiting.append((table, _checked(row)))
        if len(self.waiting) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Insert what the database has fewer copies of than the source showed so far."""
        for table in (schema.measurements, schema.failures, schema.shipments, schema.peaks):
            mine = [row for of, row in self.waiting if of is table]
            unseen = {row["content"] for row in mine} - self.taken.keys()
            counts = select(table.c.content, func.count()).group_by(table.c.content)
            for content, count in self.connection.execute(
                counts.where(table.c.content.in_(sorted(unseen)))
            ):
                self.present[content] = count
            fresh: list[rows.Row] = []
            for row in mine:
                self.taken[row["content"]] += 1
                if self.taken[row["content"]] > self.present[row["content"]]:
                    fresh.append(row)
            if fresh:
                self.connection.execute(insert(table), fresh)
            self.added[table.name] += len(fresh)
            self.added["known"] += len(mine) - len(fresh)
        self.waiting.clear()


def _check_version(fields: Entry) -> None:
    version = fields.get("schema_version")
    if not isinstance(version, int):
        raise BadEntry("the header has no schema_version")
    if version > schema.SCHEMA_VERSION:
        raise BadEntry(f"made by a newer tilewright (schema version {version}); update tilewright")


def _workload_row(fields: Entry) -> rows.Row:
    key, text = fields.get("key"), fields.get("text")
    if not isinstance(key, str) or not isinstance(text, str):
        raise BadEntry("a workload needs a key and a text")
    if key.rpartition("-")[2] != digest(text):
        raise BadEntry(f"the workload {key!r} does not fit its text")
    return {"key": key, "text": text}


def _content_row(kind: object, fields: Entry, run_ids: dict[int, int]) -> tuple[Table, rows.Row]:
    if kind in ("measurement", "failure"):
        foreign_id = fields.get("run_id")
        fields["run_id"] = run_ids.get(foreign_id) if isinstance(foreign_id, int) else None
        if kind == "failure":
            return schema.failures, rows.outcome_row(msgspec.convert(fields, Failure))
        measurement = msgspec.convert(fields, Measurement)
        if not measurement.samples_s or not all(map(math.isfinite, measurement.samples_s)):
            raise BadEntry("a measurement needs finite samples")
        return schema.measurements, rows.outcome_row(measurement)
    if kind == "shipment":
        return schema.shipments, rows.shipment_row(msgspec.convert(fields, Shipment))
    if kind == "peak":
        return schema.peaks, rows.peak_row(msgspec.convert(fields, rows.Peak))
    raise BadEntry(f"unknown kind of record {kind!r:.80}")


def _checked(row: rows.Row) -> rows.Row:
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BadEntry(f"{name} is not finite")
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise BadEntry(f"{name} is out of range")
    return row
