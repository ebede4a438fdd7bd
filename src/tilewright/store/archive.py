"""What `tilewright db` does with a database file: look into it, copy, merge and clean it.

Looking into it and cleaning it are about the cache of models, too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Self

from sqlalchemy import CompoundSelect, Connection, Table, delete, func, select, union

from tilewright.core.errors import StoreError, UsageError
from tilewright.core.input_files import readable
from tilewright.core.output_files import replacing
from tilewright.core.records import Placement
from tilewright.core.results import CleanUp, DatabaseInfo, ImportResult
from tilewright.core.scratch import SCRATCH, remove_leftovers
from tilewright.core.settings import read_settings
from tilewright.graph.workload import Workload
from tilewright.models.cache import cache_bytes, shrink
from tilewright.store import importing, schema
from tilewright.store.base import Store, archive_of
from tilewright.store.connections import Connections, connect, log_files
from tilewright.store.interchange.kinds import DATABASE, READERS, WRITERS, export_kind, import_kind
from tilewright.store.interchange.lines import Line, Source
from tilewright.store.migrations import schema_version
from tilewright.store.rows import DamagedRow, entry_of, stream_rows

_TRIED = ("workload_key", "device_class", "resources", "implementation", "settings", "layouts")


class SqliteArchive:
    """One SQLite file; an `Archive`. All methods raise `StoreError` when the database cannot be
    read or written.

    `path` is the file, `readonly` says whether it was opened for reading only.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.path = connections.path
        self.readonly = connections.readonly

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the write-ahead log is folded into it when nobody else has it open."""
        self._connections.close()

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
            return resolve_name(WRITERS[chosen])(connection, temporary)

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
        with readable(path):
            source = Source(path=path, task=task, placement=placement)
            return self.take_in(resolve_name(READERS[chosen])(source), path, chosen)

    def merge(self, other: Path) -> ImportResult:
        """Take in all records of another database."""
        with closing(_lines(other, self._connections)) as lines:
            return self.take_in(lines, other, DATABASE)

    def take_in(self, lines: Iterable[Line], path: Path, kind: str) -> ImportResult:
        """Take in what a reader made of the file at `path`, in one transaction, and say how many
        outcomes of another program fit no task known before."""
        with self._connections.writing(f"importing {path}") as connection:
            result = importing.Import(connection).take_all(lines)
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
        newest = func.first_value(table.c.kernel_hash).over(
            partition_by=[table.c[name] for name in _TRIED],
            order_by=(table.c.created_at.desc(), table.c.id.desc()),
        )
        ranked = select(table, newest.label("newest")).subquery()
        superseded = select(ranked.c.id).where(
            ranked.c.kernel_hash != ranked.c.newest,
            ranked.c.versions.not_in(frozenset(keep_versions)),
        )
        failures = 0
        with self._connections.writing("removing superseded measurements") as connection:
            measurements = connection.execute(
                delete(table).where(table.c.id.in_(superseded))
            ).rowcount
            if failures_older_than_s is not None:
                old = schema.failures.c.created_at < time.time() - failures_older_than_s
                failures = connection.execute(delete(schema.failures).where(old)).rowcount
        with self._connections.outside_transactions("shrinking the file") as connection:
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return CleanUp(
            measurements=measurements,
            failures=failures,
            freed_bytes=max(0, before_bytes - self._size_bytes()),
        )

    def _size_bytes(self) -> int:
        """What the file and its write-ahead log take."""
        return sum(
            file.stat().st_size for file in (self.path, log_files(self.path)[0]) if file.exists()
        )


def _lines(path: Path, receiver: Connections) -> Generator[Line]:
    """The lines of a database that records are taken from: of a row that cannot be read, why.

    Its errors say that the database that takes them in is not to blame.
    """
    try:
        with (
            closing(connect(path, readonly=True, busy_timeout_s=receiver.busy_timeout_s)) as source,
            source.reading("reading its records") as reading,
        ):
            for number, (name, row) in enumerate(stream_rows(reading), start=1):
                try:
                    yield Line(number=number, record=entry_of(name, row))
                except DamagedRow as error:
                    yield Line(number=number, reason=error.message)
    except StoreError as error:
        raise StoreError(
            error.message,
            hint=f"Nothing was imported from {path}. The database {receiver.path} is unchanged.",
        ) from error


def _count(connection: Connection, rows: Table | CompoundSelect[str]) -> int:
    source = rows if isinstance(rows, Table) else rows.subquery()
    return connection.execute(select(func.count()).select_from(source)).scalar_one()


def describe(store: Store) -> DatabaseInfo:
    """Counts of the database, and what the cache of models takes."""
    settings = read_settings()
    return replace(
        archive_of(store).info(),
        cache=str(settings.cache),
        cache_bytes=cache_bytes(settings.cache),
        cache_limit_bytes=settings.cache_limit_bytes,
    )


def clean_up(
    store: Store,
    *,
    keep_versions: Iterable[str] = (),
    failures_older_than_s: float | None = None,
    cache_limit_bytes: int | None = None,
) -> CleanUp:
    """Remove outdated rows, models of the cache above its limit, and temporary folders of processes
    that were killed.

    The limit is the one of the settings unless another is given; models in use stay.
    """
    settings = read_settings()
    limit_bytes = settings.cache_limit_bytes if cache_limit_bytes is None else cache_limit_bytes
    removed = archive_of(store).gc(
        keep_versions=keep_versions, failures_older_than_s=failures_older_than_s
    )
    dropped = shrink(settings.cache, limit_bytes)
    remove_leftovers(Path(tempfile.gettempdir()), SCRATCH)
    return replace(removed, cached_models=dropped.models, cache_freed_bytes=dropped.freed_bytes)
