"""The database of measurements: SQLite in WAL mode, one file, safe against kill -9.

`open_store` is the way in; SQLAlchemy is imported when it is called, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.store.database import SqliteStore

BUSY_TIMEOUT_S = 20.0


def open_store(
    path: Path, *, readonly: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> SqliteStore:
    """Open the database at `path`, creating file and folders unless `readonly`.

    Use the result as a context manager or call `close`. `busy_timeout_s` is how long to wait for
    another process that is writing. Raises `StoreError` for everything that can be wrong with the
    file: permission, a folder, a foreign or damaged file, a newer schema, a lock.
    """
    from tilewright.store.connections import connect
    from tilewright.store.database import SqliteStore

    return SqliteStore(connect(path, readonly=readonly, busy_timeout_s=busy_timeout_s))


def open_for_reading(path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> SqliteStore:
    """Open a database for work that only reads it.

    Where it may be written it is opened so, and made or brought up to date; where it may not, on a
    read-only disk or in another person's folder, it is read as it is. Raises as `open_store`.
    """
    from tilewright.store.connections import may_be_written

    readonly = path.expanduser().exists() and not may_be_written(path)
    return open_store(path, readonly=readonly, busy_timeout_s=busy_timeout_s)
