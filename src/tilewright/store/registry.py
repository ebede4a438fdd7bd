"""The stores by the schemes that name them: ours, and those of other packages.

`--db measurements.db` is an SQLite file. `--db SCHEME:REST` is another kind of store where SCHEME
is one: `memory:` forgets everything at the end, `toy:REST` is what another package offers as `toy`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tilewright.core.errors import StoreError
from tilewright.core.plugins import Offers, PluginError
from tilewright.store.base import Store

BUSY_TIMEOUT_S = 20.0
Location = str | os.PathLike[str]
"""A path, or `SCHEME:REST` as text."""
StoreOpener = Callable[[str, bool], Store]
"""Opens the store at REST, which may be empty, for reading only where the second argument says so.
Raises StoreError for a place that it cannot be at."""


def open_store(
    location: Location, *, readonly: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> Store:
    """Open a store, creating it unless `readonly`.

    Use the result as a context manager or call `close`. `busy_timeout_s` is how long to wait for
    another process that is writing an SQLite file. Raises StoreError for everything that can be
    wrong with the place: permission, a folder, a foreign or damaged file, a newer schema, a lock, a
    package that does not load.
    """
    scheme, rest = _split(location)
    if not scheme:
        return _open_file(rest, readonly, busy_timeout_s)
    try:
        return STORES.named(scheme)(rest, readonly)
    except PluginError as error:
        raise StoreError(error.message, hint=error.hint) from error


def open_for_reading(location: Location) -> Store:
    """Open a store for work that only reads it.

    Where it may be written it is opened so, and made or brought up to date; where it may not, on a
    read-only disk or in another person's folder, it is read as it is. Raises as `open_store`.
    """
    path = database_file(location)
    if path is not None:
        from tilewright.store.connections import may_be_written

        return open_store(location, readonly=path.exists() and not may_be_written(path))
    try:
        return open_store(location)
    except StoreError as error:
        try:
            return open_store(location, readonly=True)
        except StoreError:
            raise error from None


def database_file(location: Location) -> Path | None:
    """The SQLite file at a location; None for another kind of store."""
    scheme, rest = _split(location)
    return Path(rest).expanduser() if scheme in ("", _FILE) else None


def _split(location: Location) -> tuple[str, str]:
    """Scheme and rest: `toy:x` → `toy`, `x`; of a path the scheme is empty.

    Only a scheme that is known counts, and a file that exists wins.
    """
    text = os.fspath(location)
    scheme, colon, rest = text.partition(":")
    if not colon or not STORES.knows(scheme) or Path(text).exists():
        return "", text
    return scheme, rest


def _open_file(rest: str, readonly: bool, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Store:
    """An SQLite file, whatever its name looks like."""
    from tilewright.store.connections import connect
    from tilewright.store.database import SqliteStore

    return SqliteStore(connect(Path(rest), readonly=readonly, busy_timeout_s=busy_timeout_s))


def _memory(rest: str, readonly: bool) -> Store:
    """An empty store that nobody else sees and that nothing is left of."""
    from tilewright.store.connections import connect_in_memory
    from tilewright.store.database import SqliteStore

    if rest:
        raise StoreError(f"memory: takes nothing after its colon, but has {rest!r}.")
    return SqliteStore(connect_in_memory(readonly=readonly))


_FILE = "sqlite"
STORES = Offers[StoreOpener](
    "tilewright.stores",
    kind="store of measurements",
    built_in={_FILE: _open_file, "memory": _memory},
    needs=("__call__",),
)
"""What opens each kind of store, by scheme."""
