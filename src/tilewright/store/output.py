"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewright.core.errors import OutputError


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    Links are followed and folders created. Raises `OutputError` for whatever the file system
    refuses, also inside the block; the temporary file is removed then and `path` is as before.
    """
    with _beside(path) as (temporary, target):
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(target)


def check_place(path: Path) -> None:
    """Raise `OutputError` where `replacing` could not write `path`. Nothing is left behind."""
    missing = [folder for folder in path.expanduser().resolve().parents if not folder.exists()]
    try:
        with _beside(path) as (temporary, _):
            temporary.touch()
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _beside(path: Path) -> Generator[tuple[Path, Path]]:
    """A temporary path, gone afterwards, and what `path` leads to."""
    try:
        target = path.expanduser().resolve()
        if target.exists() and not target.is_file():
            kind = "a folder" if target.is_dir() else "a device or a pipe"
            raise OutputError(f"{path} is {kind}, not a file.", hint="Choose another name.")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
        try:
            yield temporary, target
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"{path} cannot be written: {reason}.",
            hint="Nothing was left behind; choose a place with room and permission to write.",
        ) from error


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
