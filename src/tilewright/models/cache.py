"""Models that can be made again, kept below a limit: what was not used for longest goes first.

`downloads/SHA256/` and `exports/KEY/` hold a model each, `models/KEY/` the predictors
learnt from the same rows. A folder's own time of change says when it was last used.
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
class Dropped:
    """Models that were removed, and the bytes this gave back."""

    models: int
    freed_bytes: int


def use(folder: Path) -> FolderInUse | None:
    """Hold a model of the cache for as long as the result lives, and note the time; None where it
    is not there."""
    held = FolderInUse(folder)
    mark_used(folder)
    return held if held.taken else None


def mark_used(folder: Path) -> None:
    """Note that a model was used now; a cache that may not be written keeps the time it has."""
    with suppress(OSError):
        os.utime(folder)


def cache_bytes(cache: Path) -> int:
    """What the models of the cache take."""
    return sum(size_bytes for _, size_bytes, _ in _cached(cache))


def shrink(cache: Path, limit_bytes: int) -> Dropped:
    """Remove models until the rest takes `limit_bytes` at most.

    Those that any process uses stay, and what cannot be removed, too.
    """
    for kind in _KINDS:
        remove_leftovers(cache / kind, PARTIAL)
    found = sorted(_cached(cache))
    total_bytes = sum(size_bytes for _, size_bytes, _ in found)
    models = freed_bytes = 0
    for _, size_bytes, folder in found:
        if total_bytes - freed_bytes <= limit_bytes:
            break
        if remove_unused(folder):
            models += 1
            freed_bytes += size_bytes
    return Dropped(models=models, freed_bytes=freed_bytes)


def _cached(cache: Path) -> Iterator[tuple[float, int, Path]]:
    """When each model of the cache was last used, the bytes it takes, and its folder."""
    for folder in (folder for kind in _KINDS for folder in cache.glob(f"{kind}/*")):
        if folder.is_dir() and not folder.is_symlink():
            size_bytes = 0
            with suppress(OSError):
                for path in folder.rglob("*"):
                    size_bytes += path.stat().st_size if path.is_file() else 0
                yield folder.stat().st_mtime, size_bytes, folder
