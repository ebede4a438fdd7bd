"""Connections to the database file, the rules every transaction follows, and what SQLite reports,
said so that a person can act on it.

WAL mode lets others read while one process writes; `synchronous=FULL` makes a commit durable
before it returns. Writers take the lock at once (BEGIN IMMEDIATE), so none of them can fail
half-way for want of it, and wait `busy_timeout_s` for each other.

No idle connection lives through a `fork`: SQLite takes the locks of the parent for the child's own
there, and two processes that write under one lock damage the file. Each process opens its own.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from tilewright.core.errors import StoreError
from tilewright.core.scratch import PrivateFolder, scratch_folder
from tilewright.store import rows, schema
from tilewright.store.migrations import bring_up_to_date, schema_version

_OTHER_FILE = "or choose another file with --db PATH."
_FREE_SPACE = f"Free some space and repeat the command, {_OTHER_FILE}"

_EXPLANATIONS: dict[str, tuple[str, str]] = {
    "SQLITE_BUSY": (
        "is locked by another process",
        f"Wait until the other command has ended, {_OTHER_FILE}",
    ),
    "SQLITE_FULL": ("cannot grow: the disk is full", _FREE_SPACE),
    "SQLITE_IOERR": (
        "cannot be read or written: the disk, a quota or a file-size limit stands in the way",
        _FREE_SPACE,
    ),
    "SQLITE_READONLY": (
        "may not be written: no permission, or a read-only file system",
        f"Make the file and its folder writable, {_OTHER_FILE}",
    ),
    "SQLITE_CANTOPEN": (
        "cannot be opened: no permission for the file or its folder, or too many open files",
        f"Make the file and its folder writable, {_OTHER_FILE}",
    ),
    "SQLITE_CORRUPT": (
        "is damaged",
        f"Restore a copy or move it away (a new one is made), {_OTHER_FILE}",
    ),
    "SQLITE_NOTADB": (
        "is not an SQLite database; left untouched",
        "Choose another file with --db PATH.",
    ),
    "SQLITE_PROTOCOL": (
        "cannot be locked, as happens on network file systems",
        f"Move it to a local disk, {_OTHER_FILE}",
    ),
}
_DAMAGED = "SQLITE_CORRUPT"
_SAME = {"LOCKED": "BUSY", "PERM": "READONLY", "AUTH": "READONLY", "NOTFOUND": "CORRUPT"}
_RETRY_S = 0.02
_engines: WeakSet[Engine] = WeakSet()


def _close_idle_connections() -> None:
    for engine in list(_engines):
        engine.dispose()


os.register_at_fork(before=_close_idle_connections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Transactions on one database file. Safe to use from several threads.

    `copy` holds what is read instead of a file that cannot be read where it lies. `leaves_log` says
    that reading made the log beside the file, which SQLite leaves to whoever may write.
    """

    path: Path
    readonly: bool
    busy_timeout_s: float
    engine: Engine
    copy: PrivateFolder | None = None
    leaves_log: bool = False

    def reading(self, doing: str = "reading") -> AbstractContextManager[Connection]:
        """A transaction that sees one state of the database from begin to end."""
        return self._begun("DEFERRED", doing)

    def writing(self, doing: str) -> AbstractContextManager[Connection]:
        """A transaction that is durable when the block ends, and undone if it raises."""
        if self.readonly:
            raise StoreError(f"{self.path} was opened for reading only. Lost: {doing}.")
        return self._begun("IMMEDIATE", doing, lost=True)

    def outside_transactions(self, doing: str) -> AbstractContextManager[Connection]:
        """For statements SQLite refuses inside a transaction."""
        return self._begun("", doing)

    @contextmanager
    def _begun(self, mode: str, doing: str, *, lost: bool = False) -> Generator[Connection]:
        """A connection behind SQLite's `BEGIN` of a mode, or behind none."""
        engine = self.engine.execution_options(begin=mode)
        with explained(self.path, doing, lost=lost), engine.begin() as connection:
            yield connection

    def copy_to(self, path: Path) -> None:
        """Write a copy of one state of the database, whoever is writing meanwhile."""
        with (
            explained(self.path, "copying"),
            self.engine.connect() as connection,
            closing(sqlite3.connect(path)) as target,
        ):
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)
            source.backup(target)

    def close(self) -> None:
        """Close all connections. A log that only reading made goes, unless others use it."""
        with ExitStack() as stack:
            if self.copy is not None:
                stack.callback(self.copy.close)
            stack.enter_context(explained(self.path, "closing"))
            self.engine.dispose()
        if self.leaves_log:
            _drop_log(self.path)


def connect(path: Path, *, readonly: bool, busy_timeout_s: float) -> Connections:
    """Open, check and bring up to date. Raises `StoreError`.

    With `readonly` the file does not change: one of an older version, or one whose log SQLite could
    only read beside a file that it may not make, is copied into the temporary folder first.
    """
    path = path.expanduser()
    _check_place(path, readonly=readonly)
    if readonly and _lacks_index(path):
        return _copied(path, busy_timeout_s, lambda own: _copy_files(path, own))
    connections = Connections(
        path=path,
        readonly=readonly,
        busy_timeout_s=busy_timeout_s,
        engine=_make_engine(_address(path, readonly=readonly), busy_timeout_s),
        leaves_log=readonly and not any(each.exists() for each in log_files(path)),
    )
    with ExitStack() as undo:
        undo.callback(connections.close)
        with connections.reading("opening") as connection:
            version = schema_version(connection, path)
        if not readonly:
            _use_write_ahead_log(connections)
        if readonly and version == 0:
            raise StoreError(
                f"{path} is empty, not a database of tilewright.", hint="Choose another file."
            )
        if readonly and version != schema.SCHEMA_VERSION:
            return _copied(path, busy_timeout_s, connections.copy_to)
        if version != schema.SCHEMA_VERSION:
            with connections.writing("creating the tables") as connection:
                bring_up_to_date(connection, path)
        undo.pop_all()
    return connections


def connect_in_memory(*, readonly: bool) -> Connections:
    """An empty database in memory, gone when it is closed; what belongs beside it is gone, too.

    It lives in one connection, for which threads wait in turn, and which survives a `fork` here: no
    other process can share it.
    """
    folder = scratch_folder()
    made = Connections(
        path=folder.path / "memory.db",
        readonly=False,
        busy_timeout_s=0.0,
        engine=_make_engine(":memory:", 0.0, alone=True),
        copy=folder,
    )
    with made.writing("creating the tables") as connection:
        bring_up_to_date(connection, made.path)
    return replace(made, readonly=readonly)


def may_be_written(path: Path) -> bool:
    """Whether the place of a database lets it be made, or changed."""
    try:
        _check_place(path.expanduser(), readonly=False)
    except StoreError:
        return False
    return True


def _copied(path: Path, busy_timeout_s: float, copy: Callable[[Path], None]) -> Connections:
    """A copy of our own, brought up to date, that answers as `path` would."""
    folder = scratch_folder()
    own = folder.path / path.name
    copy(own)
    return replace(
        connect(own, readonly=False, busy_timeout_s=busy_timeout_s),
        path=path,
        readonly=True,
        copy=folder,
    )


def _copy_files(path: Path, copy: Path) -> None:
    """Copy a database and its log, which nobody can be writing to."""
    try:
        for source in (path, *log_files(path)):
            if source.exists():
                shutil.copyfile(source, copy.with_name(source.name))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be copied, which reading it needs where it may not be written: "
            f"{error.strerror or error}.",
            hint="Copy it to a place with permission to write, and give --db COPY.",
        ) from error


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
        for place in (path.parent, path, *log_files(path)):
            if place.exists() and not os.access(place, os.W_OK):
                raise StoreError(
                    f"{path} may not be written: no permission for {place}, or a read-only file "
                    "system.",
                    hint=hint,
                )
    except OSError as error:
        raise StoreError(
            f"{path} cannot be a database: {error.strerror or error}.", hint=hint
        ) from error


def _address(path: Path, *, readonly: bool) -> str:
    """SQLite's URI. A file nobody can be writing to is read without its lock files."""
    uri = path.absolute().as_uri()
    if not readonly:
        return f"{uri}?mode=rwc"
    frozen = not os.access(path.parent, os.W_OK) and not log_files(path)[0].exists()
    return f"{uri}?mode=ro&immutable=1" if frozen else f"{uri}?mode=ro"


def log_files(path: Path) -> tuple[Path, Path]:
    """The write-ahead log beside a database and its index."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _drop_log(path: Path) -> None:
    """Close the database once as somebody who may write: the last one to do so removes the log."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True, timeout=0)) as last:
        last.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _lacks_index(path: Path) -> bool:
    """Whether there is a log, of a process that crashed, and no index that SQLite could use."""
    log, index = log_files(path)
    return log.exists() and not index.exists() and not os.access(path.parent, os.W_OK)


def _make_engine(uri: str, busy_timeout_s: float, *, alone: bool = False) -> Engine:
    """An engine of connections to a file, or of one `alone`, for what no other would see."""

    def create() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    limits = {"pool_size": 1, "max_overflow": 0} if alone else {}
    engine = create_engine("sqlite://", creator=create, poolclass=QueuePool, **limits)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        mode = connection.get_execution_options().get("begin", "DEFERRED")
        if mode:
            connection.exec_driver_sql(f"BEGIN {mode}")

    if not alone:
        _engines.add(engine)
    return engine


def _use_write_ahead_log(connections: Connections) -> None:
    """Switch to WAL, which SQLite refuses at once, without waiting, while others hold a lock."""
    deadline = time.monotonic() + connections.busy_timeout_s
    with connections.outside_transactions("opening") as connection:
        while connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
            try:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
                return
            except DBAPIError as error:
                if _error_name(error.orig) != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)


def _error_name(cause: BaseException | None) -> str:
    """SQLite's primary result code, e.g. `SQLITE_BUSY`; empty when it gave none."""
    name: str = getattr(cause, "sqlite_errorname", "") or ""
    primary = "_".join(name.split("_")[:2])
    same = _SAME.get(primary.removeprefix("SQLITE_"))
    return f"SQLITE_{same}" if same else primary


@contextmanager
def explained(path: Path, doing: str, *, lost: bool = False) -> Generator[None]:
    """Turn errors of SQLite inside the block into `StoreError`, which says what failed, in which
    file, what was lost, and what to do.

    `lost` says that the block writes, so that what it was doing is undone.
    """
    try:
        yield
    except rows.DamagedRow as error:
        raise StoreError(
            f"{path} is damaged: {error.message}",
            hint=f"`tilewright db import {path} --kind db --db NEW.db` takes over all rows that "
            "can be read. Then choose that file with --db.",
        ) from error
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # what SQLite says of a damaged schema may itself be no text
        name = _DAMAGED if isinstance(error, UnicodeDecodeError) else _error_name(cause)
        meaning, hint = _EXPLANATIONS.get(
            name, ("failed", f"Check it with `tilewright db info`, {_OTHER_FILE}")
        )
        outcome = (
            f"Lost: {doing}. Everything stored before is safe."
            if lost
            else f"Failed while {doing}."
        )
        raise StoreError(f"{path} {meaning} (SQLite: {cause}). {outcome}", hint=hint) from error
