"""Accounting for wall clock by phase."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Generator[None]:
    """Add the time of the block to its phase, whatever happens inside."""
    began_s = time.monotonic()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.monotonic() - began_s
