"""Export, import and merge."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from sqlalchemy import Connection, func, select

from tilewright.core.errors import ModelError, OutputError, UsageError, close_matches
from tilewright.core.fingerprints import canonical_json
from tilewright.store import schema
from tilewright.store.connections import Connections, connect
from tilewright.store.entries import Entry, header, stream_entries, stream_measurements
from tilewright.store.intake import BadEntry, Imported, Intake
from tilewright.store.output import replacing

ExportFormat = Literal["csv", "jsonl", "parquet", "json"]
_SQLITE_MAGIC = b"SQLite format 3\0"


def export(connections: Connections, path: Path, format: ExportFormat | None) -> int:
    """See `SqliteStore.export`."""
    known = get_args(ExportFormat)
    chosen = format or path.suffix.removeprefix(".").lower()
    if chosen not in known:
        raise UsageError(
            f"Cannot tell the format of {path}."
            if format is None
            else f"There is no export format {chosen!r}.",
            hint=close_matches(chosen, known),
        )
    _refuse_own_files(connections.path, path)
    write = {"csv": _csv, "jsonl": _jsonl, "json": _json, "parquet": _parquet}[chosen]
    with connections.reading("exporting") as connection, replacing(path) as temporary:
        return write(connection, temporary)


def _refuse_own_files(database: Path, path: Path) -> None:
    own = database.resolve()
    names = {own.name, f"{own.name}-wal", f"{own.name}-shm"}
    target = path.expanduser().resolve()
    if target.parent == own.parent and target.name in names:
        raise UsageError(f"{path} belongs to the database itself; choose another name.")


def _jsonl(connection: Connection, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(canonical_json(header()) + "\n")
        for entry in stream_entries(connection):
            file.write(canonical_json(entry) + "\n")
            count += 1
    return count


def _json(connection: Connection, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"schema_version": {schema.SCHEMA_VERSION}, "records": [')
        for entry in stream_entries(connection):
            file.write((",\n" if count else "\n") + canonical_json(entry))
            count += 1
        file.write("\n]}\n")
    return count


def _csv(connection: Connection, path: Path) -> int:
    from tilewright.store.frames import COLUMNS, flat

    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(COLUMNS))
        writer.writeheader()
        for batch in stream_measurements(connection):
            for measurement in batch:
                row: dict[str, Any] = flat(measurement)
                writer.writerow(row | {"samples_s": canonical_json(row["samples_s"])})
            count += len(batch)
    return count


def _parquet(connection: Connection, path: Path) -> int:
    from polars.exceptions import PolarsError

    from tilewright.store.frames import to_lazy_frame

    try:
        to_lazy_frame(lambda: stream_measurements(connection)).sink_parquet(path)
    except PolarsError as error:
        raise OutputError(f"{path} cannot be written: {error}.") from error
    return connection.execute(select(func.count()).select_from(schema.measurements)).scalar_one()


def merge(connections: Connections, source: Connections) -> Imported:
    """See `SqliteStore.merge`."""
    with source.reading(f"merging {source.path}") as reading:
        return _take_in(connections, source.path, lambda: stream_entries(reading))


def import_file(connections: Connections, path: Path) -> Imported:
    """See `SqliteStore.import_file`."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    if magic != _SQLITE_MAGIC:
        return _take_in(connections, path, lambda: _read_lines(path))
    source = connect(path, readonly=True, busy_timeout_s=connections.busy_timeout_s)
    try:
        return merge(connections, source)
    finally:
        source.close()


def _read_lines(path: Path) -> Iterator[Entry]:
    try:
        with path.open("rb") as file:
            first = _parse_line(file.readline())
            if first is None or first.get("record") != header()["record"]:
                raise BadEntry("this is no export of tilewright, its header is missing")
            yield first
            for line in file:
                entry = _parse_line(line)
                if entry is None:
                    raise BadEntry("not a JSON object; is the file cut short?")
                yield entry
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error


def _parse_line(line: bytes) -> Entry | None:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _take_in(
    connections: Connections, path: Path, entries: Callable[[], Iterator[Entry]]
) -> Imported:
    """All entries in one transaction, counting them for error messages."""
    number = 0

    def counted() -> Iterator[Entry]:
        nonlocal number
        number = 1
        for entry in entries():
            yield entry
            number += 1

    with connections.writing(f"importing {path}") as connection:
        try:
            return Intake(connection=connection).take_all(counted())
        except BadEntry as error:
            raise ModelError(
                f"{path}, record {number}: {error}. Nothing was imported.",
                hint="`tilewright db import` takes what `tilewright db export` wrote as .jsonl, "
                "or another database.",
            ) from error
