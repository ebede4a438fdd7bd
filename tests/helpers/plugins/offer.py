"""Making a plug-in visible as if it were installed, here and in every process started from here."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

from tilewright.core.plugins import forget_plugins

HERE = Path(__file__).parents[2]
"""What is on the module search path of tests."""
Points = Mapping[str, Mapping[str, str]]
"""Entry points: group → name → `module:object`."""


def both_halves(implementation: str) -> Points:
    """The entry points of an implementation of this folder."""
    package = f"helpers.plugins.{implementation}_plugin"
    return {
        "tilewright.implementations": {implementation: f"{package}.spec:SPEC"},
        "tilewright.lowerings": {implementation: f"{package}.lowering:lower"},
    }


def offered(folder: Path, package: str, points: Points | None = None) -> list[str]:
    """Entries for the module search path with which `package` offers these entry points; where
    none are given, both halves of the implementation of its name.

    `folder` takes the metadata that an installer would have written.
    """
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    text = "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
        for group, named in (points or both_halves(package)).items()
    )
    (metadata / "entry_points.txt").write_text(text)
    return [str(folder), str(HERE)]


@contextmanager
def offering(folder: Path, points: Points, package: str = "toys") -> Generator[None]:
    """In this process, a package offers these entry points inside the block, and not after it."""
    entries = offered(folder / package, package, points)
    before = list(sys.path)
    sys.path[:0] = entries
    invalidate_caches()
    forget_plugins()
    try:
        yield
    finally:
        sys.path[:] = before
        forget_plugins()
