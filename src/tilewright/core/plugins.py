"""Entry points of other packages."""

from __future__ import annotations

from importlib.metadata import entry_points


def load_plugins(group: str) -> dict[str, object]:
    """What other installed packages offer under an entry-point group, by name."""
    return {point.name: point.load() for point in entry_points(group=group)}
