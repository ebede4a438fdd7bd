"""Export, import and merge."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, func, select

from tilewright.core.errors import OutputError, StoreError, UsageError
from tilewright.core.fingerprints import canonical_json
from tilewright.core.results import ImportResult
from tilewright.store import schema
from tilewright.store.connections import Connections, connect
from tilewright.store.entries import (
    device_facts,
    stream_entries,
    stream_lines,
    stream_measurements,
    stream_outcomes,
    workload_texts,
)
from tilewright.store.faults import explained
from tilewright.store.intake import Intake
from tilewright.store.interchange.header import header
from tilewright.store.interchange.kinds import DATABASE, export_kind, import_kind
from tilewright.store.interchange.lines import Line, Source, readable
from tilewright.store.interchange.tasks import count_unmatched
from tilewright.store.output import replacing


def export(connections: Connections, path: Path, kind: str | None) -> int:
    """See `SqliteStore.export`."""
    chosen = export_kind(path, kind)
    if chosen not in _WRITERS:
        raise UsageError(f"Only a session can export the kind {chosen}.")
    _refuse_own_files(connections.path, path)
    with connections.reading("exporting") as connection, replacing(path) as temporary:
        return _WRITERS[chosen](connection, temporary)


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
    from tilewright.store.frames import EXPORTED_COLUMNS, exported

    texts = workload_texts(connection)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(EXPORTED_COLUMNS))
        writer.writeheader()
        for batch in stream_measurements(connection):
            for measurement in batch:
                row = exported(measurement, texts)
                writer.writerow(row | {"samples_s": canonical_json(row["samples_s"])})
            count += len(batch)
    return count


def _parquet(connection: Connection, path: Path) -> int:
    from polars.exceptions import PolarsError

    from tilewright.store.frames import to_lazy_frame

    texts = workload_texts(connection)
    try:
        to_lazy_frame(lambda: stream_measurements(connection), texts).sink_parquet(path)
    except PolarsError as error:
        raise OutputError(f"{path} cannot be written: {error}.") from error
    return connection.execute(select(func.count()).select_from(schema.measurements)).scalar_one()


def _autotvm(connection: Connection, path: Path) -> int:
    from tilewright.store.interchange.autotvm_export import log_line

    texts, devices = workload_texts(connection), device_facts(connection)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for outcome in stream_outcomes(connection):
            line = log_line(outcome, texts, devices.get(outcome.device_class))
            file.write(json.dumps(line) + "\n")
            count += 1
    return count


def _t4(connection: Connection, path: Path) -> int:
    from tilewright.store.interchange.t4 import result_of, t4_header

    texts, devices = workload_texts(connection), device_facts(connection)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{{t4_header(texts, list(devices.values()))}, "results": [')
        for outcome in stream_outcomes(connection):
            file.write((",\n" if count else "\n") + json.dumps(result_of(outcome)))
            count += 1
        file.write("\n]}\n")
    return count


_WRITERS: dict[str, Callable[[Connection, Path], int]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "json": _json,
    "parquet": _parquet,
    "autotvm": _autotvm,
    "t4": _t4,
}
_READING = "reading its records"
_READERS = {
    "autotvm": ("autotvm", "read"),
    "t4": ("t4", "read"),
    "csv": ("tables", "read_csv"),
    "parquet": ("tables", "read_parquet"),
    "jsonl": ("ours", "read_lines"),
    "json": ("ours", "read_object"),
}


def merge(connections: Connections, path: Path) -> ImportResult:
    """See `SqliteStore.merge`."""
    with ExitStack() as stack:
        with _giving(path, connections.path):
            timeout_s = connections.busy_timeout_s
            source = connect(path, readonly=True, busy_timeout_s=timeout_s)
            stack.callback(source.close)
            reading = stack.enter_context(source.reading(_READING))
        lines = _lines(reading, path, connections.path)
        return take_in(connections, path, lines, kind=DATABASE)


def _lines(reading: Connection, path: Path, receiver: Path) -> Iterator[Line]:
    """The lines of a database that records are taken from."""
    with _giving(path, receiver), explained(path, _READING):
        yield from stream_lines(reading)


@contextmanager
def _giving(path: Path, receiver: Path) -> Generator[None]:
    """Errors of the database that records are taken from say that the other one is not to blame."""
    try:
        yield
    except StoreError as error:
        raise StoreError(
            error.message,
            hint=f"Nothing was taken from {path}. {receiver}, where it should have gone, is as it "
            "was.",
        ) from error


def import_file(connections: Connections, source: Source, kind: str | None) -> ImportResult:
    """See `SqliteStore.import_file`."""
    chosen = import_kind(source.path, kind)
    if chosen == DATABASE:
        return merge(connections, source.path)
    if chosen not in _READERS:
        raise UsageError(f"{source.path} is of kind {chosen}, which only a session can import.")
    module, name = _READERS[chosen]
    read = getattr(import_module(f"tilewright.store.interchange.{module}"), name)
    with readable(source.path):
        return take_in(connections, source.path, read(source), kind=chosen)


def take_in(
    connections: Connections, path: Path, lines: Iterable[Line], *, kind: str
) -> ImportResult:
    """Take in lines in one transaction, and say how many fit no task known before."""
    strangers: Counter[str] = Counter()

    def watched() -> Iterator[Line]:
        for line in lines:
            if line.foreign and line.record is not None:
                strangers[line.record["workload_key"]] += 1
            yield line

    with connections.writing(f"importing {path}") as connection:
        texts = workload_texts(connection)
        result = Intake(connection=connection).take_all(watched())
    unmatched = count_unmatched(strangers, texts) if strangers else 0
    note = f"{unmatched} of {result.lines} lines fit no task of this database" if unmatched else ""
    return replace(result, path=str(path), kind=kind, unmatched=unmatched, note=note)
