"""The only place that reads environment variables."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from tilewright.core.arguments import location_of
from tilewright.core.errors import UsageError
from tilewright.core.units import parse_bytes

CACHE_LIMIT_BYTES = 10 * 1024**3
"""What models in the cache take at most where nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """What a person can set from outside.

    `database`, a path or `SCHEME:REST`, comes from TILEWRIGHT_DB, else from the user's data folder;
    `cache` from TILEWRIGHT_CACHE, else from the user's cache folder: what is there can be made
    again, and models in it are kept below `cache_limit_bytes`, from TILEWRIGHT_CACHE_LIMIT.
    `omp_threads` is OMP_NUM_THREADS, honoured as an upper limit of the default thread count.
    """

    database: str
    cache: Path
    cache_limit_bytes: int
    omp_threads: int | None
    no_color: bool


def read_settings() -> UserSettings:
    """Read the environment once. Raises `UsageError` for what cannot be understood."""
    database = os.environ.get("TILEWRIGHT_DB")
    cache = os.environ.get("TILEWRIGHT_CACHE") or platformdirs.user_cache_dir("tilewright")
    omp = os.environ.get("OMP_NUM_THREADS", "")
    limit = os.environ.get("TILEWRIGHT_CACHE_LIMIT")
    limit_bytes = parse_bytes(limit) if limit else CACHE_LIMIT_BYTES
    if limit_bytes is None:
        raise UsageError(
            f"TILEWRIGHT_CACHE_LIMIT is {limit!r}, which is no size.",
            hint="For example 20GB, or 0.",
        )
    return UserSettings(
        database=location_of(database, "TILEWRIGHT_DB")
        if database
        else f"{platformdirs.user_data_dir('tilewright')}/tilewright.db",
        cache=Path(cache).expanduser(),
        cache_limit_bytes=limit_bytes,
        omp_threads=int(omp) if omp.isdigit() and int(omp) > 0 else None,
        no_color=bool(os.environ.get("NO_COLOR")),
    )


def child_environment(**overrides: str) -> dict[str, str]:
    """The environment for a worker process: ours plus `overrides`."""
    return {**os.environ, **overrides}


@contextmanager
def environment_with(name: str, value: str) -> Generator[None]:
    """A variable of this process's environment, which libraries read, for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
