"""Folders for what a process makes on the way, which go with the process, however it ends.

Each folder is locked with `flock` for as long as its owner lives. The kernel drops the lock with
the process, after `kill -9` too, and a process number that is used again cannot be mistaken for its
owner. So a folder without a lock is a leftover, and whoever makes the next folder beside it removes
it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import weakref
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from tilewright.core.errors import OutputError

SCRATCH = "tilewright-scratch-"
"""What the names of folders in the temporary folder start with."""
_ENDING = ".tmp"
_DRAWN = "[a-z0-9_]{8}"
_FOLDER_ITSELF = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class PrivateFolder:
    """A new folder in `parent`, which is made where it is missing.

    It is removed by `close`, at the end of a `with` block, with the object, or when the process
    ends; after a crash by the next one of the same `prefix` in `parent`. A forked child leaves it
    to its parent. Raises `OSError` where it cannot be made.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(parent, prefix)
        self.path, lock = _made(parent, prefix)
        self._end = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder with all that it holds."""
        self._end()


class FolderInUse(AbstractContextManager["FolderInUse"]):
    """A hold on a folder that others may not remove meanwhile; several processes may have one.

    It ends with `close`, with the object or with the process. `taken` is False where the folder is
    not there.
    """

    def __init__(self, folder: Path) -> None:
        lock = _held(folder)
        self.taken = lock is not None
        self._end = weakref.finalize(self, _close, lock)

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others remove the folder."""
        self._end()


def scratch_folder() -> PrivateFolder:
    """A folder in the system's temporary folder.

    Raises `OutputError` where there is none, or no room in it.
    """
    try:
        return PrivateFolder(Path(tempfile.gettempdir()), SCRATCH)
    except OSError as error:
        raise OutputError(
            f"cannot make a temporary folder: {error.strerror or error}",
            hint="Set TMPDIR to a folder with room and permission to write.",
        ) from error


def remove_leftovers(parent: Path, prefix: str) -> None:
    """Remove folders of this prefix in `parent` whose owners have died."""
    name = re.compile(re.escape(prefix) + _DRAWN + re.escape(_ENDING))
    with suppress(OSError):
        for folder in parent.iterdir():
            if name.fullmatch(folder.name):
                remove_unused(folder)


def remove_unused(folder: Path) -> bool:
    """Remove a folder that nobody has locked; whether it was removed."""
    try:
        lock = os.open(folder, _FOLDER_ITSELF)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    except OSError:
        return False
    finally:
        os.close(lock)


def _made(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and its lock. Another process may take it for a leftover before it is locked,
    and then there is another try."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, suffix=_ENDING, dir=parent))
        lock = _held(path)
        if lock is not None:
            return path, lock


def _held(folder: Path) -> int | None:
    """A descriptor of the folder with a lock that others may share; None where it is gone."""
    lock = None
    with suppress(OSError):
        lock = os.open(folder, _FOLDER_ITSELF)
        with suppress(OSError):  # where a file system has no locks, nothing is removed either
            fcntl.flock(lock, fcntl.LOCK_SH)
        if os.path.samestat(folder.stat(), os.fstat(lock)):
            return lock
    _close(lock)
    return None


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
    _close(lock)


def _close(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
