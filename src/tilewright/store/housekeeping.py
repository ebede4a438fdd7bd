"""What the database and the cache hold, and cleaning both up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tilewright.core.results import CleanUp, DatabaseInfo
from tilewright.core.scratch import SCRATCH, remove_leftovers
from tilewright.core.settings import read_settings
from tilewright.models.cache import cache_bytes, shrink
from tilewright.store.base import Store, archive_of


def describe(store: Store) -> DatabaseInfo:
    """Counts of the database, and what the cache of models takes."""
    settings = read_settings()
    return replace(
        archive_of(store).info(),
        cache=str(settings.cache),
        cache_bytes=cache_bytes(settings.cache),
        cache_limit_bytes=settings.cache_limit_bytes,
    )


def clean_up(
    store: Store,
    *,
    keep_versions: Iterable[str] = (),
    failures_older_than_s: float | None = None,
    cache_limit_bytes: int | None = None,
) -> CleanUp:
    """Remove outdated rows, models of the cache above its limit, and temporary folders of processes
    that were killed.

    The limit is the one of the settings unless another is given; models in use stay.
    """
    settings = read_settings()
    limit_bytes = settings.cache_limit_bytes if cache_limit_bytes is None else cache_limit_bytes
    removed = archive_of(store).gc(
        keep_versions=keep_versions, failures_older_than_s=failures_older_than_s
    )
    dropped = shrink(settings.cache, limit_bytes)
    remove_leftovers(Path(tempfile.gettempdir()), SCRATCH)
    return replace(removed, cached_models=dropped.models, cache_freed_bytes=dropped.freed_bytes)
