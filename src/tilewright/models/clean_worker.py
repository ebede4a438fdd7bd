"""The process that cleans models: `tilewright.models.contained` is the other side."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tilewright.core.child import serve
from tilewright.models import clean


@contextmanager
def _at_most(extra_bytes: int) -> Generator[None]:
    """Let this process allocate so much more than it has."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    has: int = psutil.Process().memory_info().data
    resource.setrlimit(resource.RLIMIT_DATA, (has + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def ready() -> None:
    """Everything is imported: what takes long from here on is the model's doing."""


def fold(source: str, target: str, memory_bytes: int) -> bool:
    """As `clean.fold`."""
    with _at_most(memory_bytes):
        return clean.fold(Path(source), Path(target))


def inline(model: bytes, memory_bytes: int) -> bytes:
    """As `clean.inline`."""
    with _at_most(memory_bytes):
        return clean.inline(model)


def infer(model: bytes, memory_bytes: int) -> bytes:
    """As `clean.infer`."""
    with _at_most(memory_bytes):
        return clean.infer(model)


if __name__ == "__main__":
    serve({"ready": ready, "fold": fold, "inline": inline, "infer": infer})
