"""What SQLite reports, said so that a person can act on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from tilewright.core.errors import StoreError
from tilewright.store.rows import DamagedRow

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


def error_name(error: DBAPIError | sqlite3.Error) -> str:
    """SQLite's primary result code, e.g. `SQLITE_BUSY`; empty when it gave none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    name: str = getattr(cause, "sqlite_errorname", "") or ""
    primary = "_".join(name.split("_")[:2])
    same = _SAME.get(primary.removeprefix("SQLITE_"))
    return f"SQLITE_{same}" if same else primary


def explain(
    error: DBAPIError | sqlite3.Error | UnicodeDecodeError, path: Path, doing: str, *, lost: bool
) -> StoreError:
    """The error to raise instead: what failed, in which file, what was lost, what to do."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    # what SQLite says of a damaged schema may itself be no text
    name = _DAMAGED if isinstance(error, UnicodeDecodeError) else error_name(error)
    meaning, hint = _EXPLANATIONS.get(
        name, ("failed", f"Check it with `tilewright db info`, {_OTHER_FILE}")
    )
    outcome = (
        f"Lost: {doing}. Everything stored before is safe." if lost else f"Failed while {doing}."
    )
    return StoreError(f"{path} {meaning} (SQLite: {cause}). {outcome}", hint=hint)


@contextmanager
def explained(path: Path, doing: str, *, lost: bool = False) -> Generator[None]:
    """Turn errors of SQLite inside the block into `StoreError`.

    `lost` says that the block writes, so that what it was doing is undone.
    """
    try:
        yield
    except DamagedRow as error:
        raise StoreError(
            f"{path} is damaged: {error.message}",
            hint=f"`tilewright db import {path} --kind db --db NEW.db` takes over all rows that "
            "can be read. Then choose that file with --db.",
        ) from error
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError) as error:
        raise explain(error, path, doing, lost=lost) from error
