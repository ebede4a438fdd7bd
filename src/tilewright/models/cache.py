"""Models that can be made again, kept below a limit: what was not used for longest goes first.

`downloads/SHA256/` and `exports/KEY/` hold a model each, `models/CLASS/` the predictors of a class
of devices. A folder's own time of change says when it was last used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.scratch import FolderInUse, remove_leftovers, remove_unused

DOWNLOADS, EXPORTS, PREDICTORS = "downloads", "exports", "models"
PARTIAL = ".part-"
"""What the names of folders start with in which a model is still being made."""
_KINDS = (DOWNLOADS, EXPORTS, PREDICTORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """A model of the cache: its folder, how much it takes, and when it was last used."""

    folder: Path
    size_bytes: int
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Models that were removed, and the bytes this gave back."""

    models: int
    freed_bytes: int


def use(folder: Path) -> FolderInUse | None:
    """Hold a model of the cache for as long as the result lives, and note the time; None where it
    is not there."""
    held = FolderInUse(folder)
    if not held.taken:
        return None
    mark_used(folder)
    return held


def mark_used(folder: Path) -> None:
    """Note that a model was used now; a cache that may not be written keeps the time it has."""
    with suppress(OSError):
        os.utime(folder)


def cache_bytes(cache: Path) -> int:
    """What the models of the cache take."""
    return sum(each.size_bytes for each in _cached(cache))


def shrink(cache: Path, limit_bytes: int) -> Dropped:
    """Remove models until the rest takes `limit_bytes` at most.

    Those that any process uses stay, and what cannot be removed, too.
    """
    for kind in _KINDS:
        remove_leftovers(cache / kind, PARTIAL)
    found = sorted(_cached(cache), key=lambda each: each.used_at)
    total_bytes = sum(each.size_bytes for each in found)
    models = freed_bytes = 0
    for each in found:
        if total_bytes - freed_bytes <= limit_bytes:
            break
        if remove_unused(each.folder):
            models += 1
            freed_bytes += each.size_bytes
    return Dropped(models=models, freed_bytes=freed_bytes)


def _cached(cache: Path) -> Iterator[Cached]:
    for kind in _KINDS:
        with suppress(OSError):
            for folder in (cache / kind).iterdir():
                if folder.is_dir() and not folder.is_symlink():
                    with suppress(OSError):
                        yield Cached(
                            folder=folder,
                            size_bytes=_size_bytes(folder),
                            used_at=folder.stat().st_mtime,
                        )


def _size_bytes(folder: Path) -> int:
    size_bytes = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size_bytes += path.stat().st_size if path.is_file() else 0
    return size_bytes
