"""What `tilewright db` does with a database file: look into it, copy, merge and clean it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Self

from sqlalchemy import CompoundSelect, Connection, Table, delete, func, select, union

from tilewright.core.errors import StoreError, UsageError
from tilewright.core.records import Placement
from tilewright.core.results import CleanUp, DatabaseInfo, ImportResult
from tilewright.graph.workload import Workload
from tilewright.store import schema
from tilewright.store.connections import Connections, connect, explained, log_files
from tilewright.store.entries import stream_lines
from tilewright.store.exporting import WRITERS
from tilewright.store.importing import Import
from tilewright.store.interchange.kinds import DATABASE, READERS, export_kind, import_kind
from tilewright.store.interchange.lines import Line, Source, readable
from tilewright.store.migrations import schema_version
from tilewright.store.output import replacing

_READING = "reading its records"


class SqliteArchive:
    """One SQLite file; an `Archive`. All methods raise `StoreError` when the database cannot be
    read or written."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it when nobody else has it open."""
        self._connections.close()

    @property
    def path(self) -> Path:
        """The database file."""
        return self._connections.path

    @property
    def readonly(self) -> bool:
        """Whether it was opened for reading only."""
        return self._connections.readonly

    def info(self) -> DatabaseInfo:
        """What the database holds, all of it counted in one consistent state."""
        measured, failed = schema.measurements.c, schema.failures.c
        classes = union(
            select(schema.devices.c.class_key),
            select(measured.device_class),
            select(failed.device_class),
        )
        tasks = union(
            select(schema.workloads.c.key),
            select(measured.workload_key),
            select(failed.workload_key),
        )
        with self._connections.reading() as connection:
            return DatabaseInfo(
                path=str(self.path),
                schema_version=schema_version(connection, self.path),
                measurements=_count(connection, schema.measurements),
                failures=_count(connection, schema.failures),
                devices=_count(connection, classes),
                tasks=_count(connection, tasks),
                runs=_count(connection, schema.runs),
                size_bytes=self._size_bytes(),
            )

    def export(self, path: Path, kind: str | None = None) -> int:
        """Write the database to `path` and return the number of records written.

        `jsonl` and `json` hold everything, `autotvm` and `t4` all outcomes, `csv` and `parquet`
        a table of the measurements; None goes by the ending of the name. The file appears complete
        or not at all. Raises `OutputError` when it cannot be written, `UsageError` for an unknown
        kind.
        """
        chosen = export_kind(path, kind)
        if chosen not in WRITERS:
            raise UsageError(f"Only a session can export the kind {chosen}.")
        own = self.path.resolve()
        if path.expanduser().resolve() in (own, *log_files(own)):
            raise UsageError(f"{path} belongs to the database itself; choose another name.")
        with self._connections.reading("exporting") as connection, replacing(path) as temporary:
            return WRITERS[chosen](connection, temporary)

    def import_file(
        self,
        path: Path,
        kind: str | None = None,
        *,
        task: Workload | None = None,
        placement: Placement | None = None,
    ) -> ImportResult:
        """Take in records of a file of one of `interchange.kinds.IMPORTS`; None guesses the kind.

        Known records stay single, records keep their own device class and resources. What cannot be
        taken in is listed line by line. `task` and `placement` are what a log is about that does
        not say so itself. Raises `ModelError` for a file that cannot be read or is of another kind.
        """
        chosen = import_kind(path, kind)
        if chosen == DATABASE:
            return self.merge(path)
        if chosen not in READERS:
            raise UsageError(f"{path} is of kind {chosen}, which only a session can import.")
        module, name = READERS[chosen]
        read = getattr(import_module(f"tilewright.store.interchange.{module}"), name)
        with readable(path):
            source = Source(path=path, task=task, placement=placement)
            return self.take_in(read(source), path, chosen)

    def merge(self, other: Path) -> ImportResult:
        """Take in all records of another database."""
        with ExitStack() as stack:
            with _giving(other, self.path):
                timeout_s = self._connections.busy_timeout_s
                source = connect(other, readonly=True, busy_timeout_s=timeout_s)
                stack.callback(source.close)
                reading = stack.enter_context(source.reading(_READING))
            return self.take_in(_lines(reading, other, self.path), other, DATABASE)

    def take_in(self, lines: Iterable[Line], path: Path, kind: str) -> ImportResult:
        """Take in what a reader made of the file at `path`, in one transaction, and say how many
        outcomes of another program fit no task known before."""
        with self._connections.writing(f"importing {path}") as connection:
            result = Import(connection).take_all(lines)
        lost = result.unmatched
        note = f"{lost} of {result.lines} lines fit no task of this database" if lost else ""
        return replace(result, path=str(path), kind=kind, note=note)

    def gc(
        self,
        *,
        keep_versions: Iterable[str] = (),
        failures_older_than_s: float | None = None,
    ) -> CleanUp:
        """Remove what is of no more use and shrink the file.

        A measurement goes when its candidate was measured later with another kernel hash, unless
        its `versions` are among `keep_versions`; failures go when they are older than given.
        """
        before_bytes = self._size_bytes()
        table = schema.measurements
        of_one_candidate = ("workload_key", "device_class", "resources", "implementation")
        newest = func.first_value(table.c.kernel_hash).over(
            partition_by=[table.c[name] for name in (*of_one_candidate, "settings", "layouts")],
            order_by=(table.c.created_at.desc(), table.c.id.desc()),
        )
        ranked = select(table, newest.label("newest")).subquery()
        superseded = select(ranked.c.id).where(
            ranked.c.kernel_hash != ranked.c.newest,
            ranked.c.versions.not_in(frozenset(keep_versions)),
        )
        failures = 0
        with self._connections.writing("removing superseded measurements") as connection:
            outdated = delete(table).where(table.c.id.in_(superseded))
            measurements = connection.execute(outdated).rowcount
            if failures_older_than_s is not None:
                limit = time.time() - failures_older_than_s
                old = delete(schema.failures).where(schema.failures.c.created_at < limit)
                failures = connection.execute(old).rowcount
        with self._connections.outside_transactions("shrinking the file") as connection:
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        freed_bytes = max(0, before_bytes - self._size_bytes())
        return CleanUp(measurements=measurements, failures=failures, freed_bytes=freed_bytes)

    def _size_bytes(self) -> int:
        """What the file and its write-ahead log take."""
        files = (self.path, log_files(self.path)[0])
        return sum(file.stat().st_size for file in files if file.exists())


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


def _count(connection: Connection, rows: Table | CompoundSelect[str]) -> int:
    source = rows if isinstance(rows, Table) else rows.subquery()
    return connection.execute(select(func.count()).select_from(source)).scalar_one()
