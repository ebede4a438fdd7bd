"""Connections to the database file, and the rules every transaction follows.

WAL mode lets others read while one process writes; `synchronous=FULL` makes a commit durable
before it returns. Writers take the lock at once (BEGIN IMMEDIATE), so none of them can fail
half-way for want of it, and wait `busy_timeout_s` for each other.

No idle connection lives through a `fork`: SQLite takes the locks of the parent for the child's own
there, and two processes that write under one lock damage the file. Each process opens its own.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from tilewright.core.errors import StoreError
from tilewright.store import schema
from tilewright.store.faults import error_name, explained
from tilewright.store.migrations import bring_up_to_date, schema_version

_RETRY_S = 0.02
_engines: WeakSet[Engine] = WeakSet()


def _close_idle_connections() -> None:
    for engine in list(_engines):
        engine.dispose()


os.register_at_fork(before=_close_idle_connections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Transactions on one database file. Safe to use from several threads."""

    path: Path
    readonly: bool
    busy_timeout_s: float
    engine: Engine

    @contextmanager
    def reading(self, doing: str = "reading") -> Generator[Connection]:
        """A transaction that sees one state of the database from begin to end."""
        with explained(self.path, doing), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, doing: str) -> Generator[Connection]:
        """A transaction that is durable when the block ends, and undone if it raises."""
        if self.readonly:
            raise StoreError(f"{self.path} was opened for reading only. Lost: {doing}.")
        immediate = self.engine.execution_options(begin="IMMEDIATE")
        with explained(self.path, doing, lost=True), immediate.begin() as connection:
            yield connection

    @contextmanager
    def outside_transactions(self, doing: str) -> Generator[Connection]:
        """For statements SQLite refuses inside a transaction."""
        bare = self.engine.execution_options(begin="")
        with explained(self.path, doing), bare.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        with explained(self.path, "closing"):
            self.engine.dispose()


def connect(path: Path, *, readonly: bool, busy_timeout_s: float) -> Connections:
    """Open, check and bring up to date. Raises `StoreError`."""
    path = path.expanduser()
    _check_place(path, readonly=readonly)
    connections = Connections(
        path=path,
        readonly=readonly,
        busy_timeout_s=busy_timeout_s,
        engine=_make_engine(_address(path, readonly=readonly), busy_timeout_s),
    )
    with ExitStack() as undo:
        undo.callback(connections.engine.dispose)
        with connections.reading("opening") as connection:
            version = schema_version(connection, path)
        if not readonly:
            _use_write_ahead_log(connections)
        if version != schema.SCHEMA_VERSION:
            if readonly:
                raise StoreError(
                    f"{path} has schema version {version}, this tilewright reads "
                    f"{schema.SCHEMA_VERSION}.",
                    hint="Open it once for writing; it is brought up to date then.",
                )
            with connections.writing("creating the tables") as connection:
                bring_up_to_date(connection, path)
        undo.pop_all()
    return connections


def _check_place(path: Path, *, readonly: bool) -> None:
    hint = "Choose another file with --db PATH."
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, not a database file.", hint=hint)
        if path.exists() and not path.is_file():
            raise StoreError(f"{path} is a device or a pipe, not a database file.", hint=hint)
        if readonly:
            if not path.exists():
                raise StoreError(f"There is no database at {path}.", hint=hint)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        for place in (path.parent, path):
            if place.exists() and not os.access(place, os.W_OK):
                raise StoreError(
                    f"{path} may not be written: no permission for {place}, or a read-only file "
                    "system.",
                    hint=hint,
                )
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"{path} cannot be a database: {reason}.", hint=hint) from error


def _address(path: Path, *, readonly: bool) -> str:
    """SQLite's URI. A file nobody can be writing to is read without its lock files."""
    uri = path.absolute().as_uri()
    if not readonly:
        return f"{uri}?mode=rwc"
    log = path.with_name(path.name + "-wal")
    frozen = not os.access(path.parent, os.W_OK) and not log.exists()
    return f"{uri}?mode=ro&immutable=1" if frozen else f"{uri}?mode=ro"


def _make_engine(uri: str, busy_timeout_s: float) -> Engine:
    def create() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        with ExitStack() as undo:
            undo.callback(connection.close)
            connection.execute("PRAGMA synchronous = FULL")
            undo.pop_all()
        return connection

    engine = create_engine("sqlite://", creator=create, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        mode = connection.get_execution_options().get("begin", "DEFERRED")
        if mode:
            connection.exec_driver_sql(f"BEGIN {mode}")

    _engines.add(engine)
    return engine


def _use_write_ahead_log(connections: Connections) -> None:
    """Switch to WAL, which SQLite refuses at once, without waiting, while others hold a lock."""
    deadline = time.monotonic() + connections.busy_timeout_s
    with connections.outside_transactions("opening") as connection:
        while connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
            try:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
            except DBAPIError as error:
                if error_name(error) != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
            else:
                return
