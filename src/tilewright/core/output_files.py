"""Files that appear complete or not at all, and whether a place takes one."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewright.core.errors import OutputError, reason_of
from tilewright.core.scratch import PrivateFolder


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


@contextmanager
def attempting(what: str, hint: str | None = None) -> Generator[None]:
    """Turn what the file system refuses inside the block into `OutputError`: `write to out`, say,
    into "cannot write to out: No space left on device"."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot {what}: {reason_of(error)}", hint=hint) from error


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
