"""Folders for what a process makes on the way, and files that are made there to appear complete or
not at all. The folders go with the process, however it ends.

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
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from tilewright.core.errors import OutputError, reason_of

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


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    Links are followed and folders created. Raises `OutputError` for whatever the file system
    refuses, also inside the block; the temporary file is removed then and `path` is as before.
    What a process leaves that was killed meanwhile goes with the next attempt.
    """
    with _beside(path) as (temporary, target):
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(target)


def write_text(path: Path, text: str) -> None:
    """Write a text as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_place(path: Path) -> None:
    """Raise `OutputError` where `replacing` could not write `path`. Nothing is left behind."""
    with undone_folders(path.expanduser().resolve().parent) as undo:
        with _beside(path) as (temporary, _):
            temporary.touch()
        undo()


@contextmanager
def undone_folders(folder: Path) -> Generator[Callable[[], None]]:
    """Where the block fails, the folders above `folder` and itself that were not there before go
    again, unless something is in them. What it gives does that at once."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]

    def undo() -> None:
        for each in missing:
            with suppress(OSError):
                each.rmdir()

    try:
        yield undo
    except BaseException:
        undo()
        raise


def flush_to_disk(path: Path) -> None:
    """Wait until the disk has all of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _beside(path: Path) -> Generator[tuple[Path, Path]]:
    """A temporary path, gone afterwards, and what `path` leads to."""
    before = False
    try:
        target = path.expanduser().resolve()
        if target.exists() and not target.is_file():
            kind = "a folder" if target.is_dir() else "a device or a pipe"
            raise OutputError(f"{path} is {kind}, not a file.", hint="Choose another name.")
        before = target.exists()
        with (
            undone_folders(target.parent),
            PrivateFolder(target.parent, f".{target.name[:100]}.") as folder,
        ):
            yield folder / target.name, target
    except OSError as error:
        kept = "What was there before is unchanged" if before else "No part of it was left behind"
        raise OutputError(
            f"{path} cannot be written: {reason_of(error)}.",
            hint=f"{kept}; choose a place with room and permission to write.",
        ) from error


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
