"""Taking entries of another database or an export into this one, each record once.

Equal records are told by their content: after taking in a source that holds a record m times,
a database that held it k times holds it max(k, m) times, so doing it twice changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from tilewright.core.codec import canonical_json, convert, digest, to_builtins
from tilewright.core.records import Device, Measurement, Run, ShippedPlan
from tilewright.core.results import ImportResult, SkippedLine
from tilewright.hardware.legacy import ClassesOfBefore, is_legacy
from tilewright.store import known_candidates, schema
from tilewright.store.interchange.foreign import count_unmatched
from tilewright.store.interchange.lines import Line
from tilewright.store.rows import (
    BATCH_ROWS,
    KINDS,
    TABLES,
    Entry,
    Row,
    device_facts,
    has_samples,
    row_of,
    workload_texts,
)

_COUNTED = (schema.measurements, schema.failures, schema.shipments, schema.networks, schema.peaks)
"""Tables whose rows are told by their content and may be there several times."""


class Import:
    """The state of one import, all of it inside one writing transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.run_ids: dict[int, int] = {}
        self.added = Counter[str]()
        self.present = Counter[str]()
        self.taken = Counter[str]()
        self.waiting: list[tuple[Table, Row]] = []
        self.brought: set[str] = set()

    def take_all(self, lines: Iterable[Line]) -> ImportResult:
        """Take in what is understood of all lines; the rest is listed with its reason. Outcomes of
        another program are counted that fit no task known before."""
        skipped: list[SkippedLine] = []
        strangers = Counter[str]()
        texts = workload_texts(self.connection)
        count = 0
        for line in lines:
            count += 1
            if line.foreign and line.record is not None:
                strangers[line.record["workload_key"]] += 1
            reason = line.reason or self._refusal(line)
            if reason:
                skipped.append(SkippedLine(line=line.number, reason=reason))
        self._flush()
        result = ImportResult(
            lines=count,
            imported=count - len(skipped) - self.added["known"],
            skipped=tuple(skipped),
            unmatched=count_unmatched(strangers, texts) if strangers else 0,
        )
        return replace(result, **self.added)

    def _refusal(self, line: Line) -> str:
        """Take in one line; why that was not possible, else empty."""
        try:
            for entry in line.support:
                self._bring_along(entry)
            self.take(line.record or {})
        except UnicodeError:
            return "a text holds half a character"
        except OverflowError:
            return "a number is out of range"
        except ValueError as error:
            return str(error)
        return ""

    def _bring_along(self, entry: Entry) -> None:
        """A device or workload that a record speaks of: no record of its own."""
        content = canonical_json(entry)
        if content not in self.brought:
            known = self.added["known"]
            self.take(entry)
            self.added["known"] = known
            self.brought.add(content)

    def take(self, entry: Entry) -> None:
        """Take in one entry. Raises ValueError, of which UnicodeError is one, or OverflowError."""
        name = entry.get("record")
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"unknown kind of record {name!r:.80}")
        fields = {name: value for name, value in entry.items() if name != "record"}
        table = TABLES[kind]
        match name:
            case "device" if is_legacy(fields):
                self._keep_first(table, row_of(self.classes_of_before.read(fields)))
            case "device":
                self._keep_first(table, row_of(convert(fields, Device)))
            case "workload":
                self._keep_first(table, _workload_row(fields))
            case "run":
                self._take_run(self._placed(fields))
            case _:
                row = self._counted_row(kind, self._placed(fields))
                self.waiting.append((table, _checked(row)))
                if len(self.waiting) >= BATCH_ROWS:
                    self._flush()

    def _placed(self, fields: Entry) -> Entry:
        """The fields with resources; those of before had them in their device class."""
        before = fields.get("device_class")
        if "resources" in fields or not isinstance(before, str):
            return fields
        return fields | to_builtins(self.classes_of_before.of(before))

    @cached_property
    def classes_of_before(self) -> ClassesOfBefore:
        """What classes of before are, by the devices that the database knows."""
        return ClassesOfBefore(device_facts(self.connection).values())

    def _keep_first(self, table: Table, row: Row) -> None:
        done = self.connection.execute(upsert(table).values(row).on_conflict_do_nothing())
        self.added[table.name if done.rowcount > 0 else "known"] += 1

    def _take_run(self, fields: Entry) -> None:
        uid = fields.pop("uid", None)
        run = convert(fields, Run)
        if not isinstance(uid, str) or run.id is None:
            raise ValueError("a run needs an id and a uid")
        row = _checked(row_of(run))
        table = schema.runs
        query = select(table.c.id, table.c.spent_s).filter_by(uid=uid)
        known = self.connection.execute(query).one_or_none()
        if known is None:
            query = insert(table).values(row | {"uid": uid}).returning(table.c.id)
            self.run_ids[run.id] = self.connection.execute(query).scalar_one()
            self.added["runs"] += 1
            return
        self.run_ids[run.id] = known.id
        self.added["known"] += 1
        if run.spent_s > known.spent_s:
            self.connection.execute(update(table).filter_by(id=known.id).values(row))

    def _counted_row(self, kind: type[Any], fields: Entry) -> Row:
        """The row of a record that is told by its content; its run is that of this database."""
        if "run_id" in TABLES[kind].c:
            foreign_id = fields.get("run_id")
            fields["run_id"] = self.run_ids.get(foreign_id) if isinstance(foreign_id, int) else None
        if kind is ShippedPlan:
            fields = known_candidates.carried_over(fields)
        record = convert(fields, kind)
        if isinstance(record, Measurement) and not has_samples(record):
            raise ValueError("a measurement needs finite samples")
        energy = getattr(record, "energy", None)
        if energy is not None and not all(map(math.isfinite, energy.samples_j)):
            raise ValueError("samples of energy are not finite")
        return row_of(record)

    def _flush(self) -> None:
        """Insert what the database has fewer copies of than the source showed so far."""
        for table in _COUNTED:
            mine = [row for of, row in self.waiting if of is table]
            unseen = {row["content"] for row in mine} - self.taken.keys()
            query = select(table.c.content, func.count()).group_by(table.c.content)
            query = query.where(table.c.content.in_(sorted(unseen)))
            for content, count in self.connection.execute(query):
                self.present[content] = count
            fresh: list[Row] = []
            for row in mine:
                self.taken[row["content"]] += 1
                if self.taken[row["content"]] > self.present[row["content"]]:
                    fresh.append(row)
            if fresh:
                self.connection.execute(insert(table), fresh)
            self.added += {table.name: len(fresh), "known": len(mine) - len(fresh)}
        self.waiting.clear()


def _workload_row(fields: Entry) -> Row:
    key, text = fields.get("key"), fields.get("text")
    if not isinstance(key, str) or not isinstance(text, str):
        raise ValueError("a workload needs a key and a text")
    if key.rpartition("-")[2] != digest(text):
        raise ValueError(f"the workload {key!r} does not fit its text")
    return {"key": key, "text": text}


def _checked(row: Row) -> Row:
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is not finite")
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(f"{name} is out of range")
    return row
