"""The only place that reads environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """What a person can set from outside.

    `database` comes from TILEWRIGHT_DB, else the user's data folder; `cache` from TILEWRIGHT_CACHE,
    else the user's cache folder: what is there can be made again. `omp_threads` is
    OMP_NUM_THREADS, honoured as an upper limit of the default thread count.
    """

    database: Path
    cache: Path
    omp_threads: int | None
    no_color: bool


def read_settings() -> UserSettings:
    """Read the environment once."""
    database = os.environ.get("TILEWRIGHT_DB")
    default = Path(platformdirs.user_data_dir("tilewright")) / "tilewright.db"
    cache = os.environ.get("TILEWRIGHT_CACHE")
    omp = os.environ.get("OMP_NUM_THREADS", "")
    return UserSettings(
        database=Path(database).expanduser() if database else default,
        cache=Path(cache or platformdirs.user_cache_dir("tilewright")).expanduser(),
        omp_threads=int(omp) if omp.isdigit() and int(omp) > 0 else None,
        no_color=bool(os.environ.get("NO_COLOR")),
    )


def child_environment(**overrides: str) -> dict[str, str]:
    """The environment for a worker process: ours plus `overrides`."""
    return {**os.environ, **overrides}
