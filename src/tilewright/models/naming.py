"""How names from a model file or a command line appear in messages."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.core.errors import close_matches


def quoted(name: object) -> str:
    """The name in quotes, control characters and other unprintable ones escaped."""
    return repr(str(name))


def printable(text: object) -> str:
    """What another program says, on one line and without characters that cannot be shown."""
    return quoted(" ".join(str(text).split()))[1:-1]


def quoted_matches(name: str, known: Iterable[str]) -> str:
    """As `close_matches`, safe for names out of a model file."""
    return close_matches(name, known, quoted)
