"""Which version of tilewright this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The installed version; `0+unknown` in a source tree that is not installed."""
    try:
        return version("tilewright")
    except PackageNotFoundError:
        return "0+unknown"
