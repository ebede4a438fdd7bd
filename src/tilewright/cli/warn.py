"""Warnings that come with a result, beside those shown while it was made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.cli.streams import write_message
from tilewright.report.escape import visible_lines


def merged(shown: Sequence[str], more: Iterable[str]) -> tuple[str, ...]:
    """Both, each once; those not shown before go to stderr now."""
    fresh = [warning for warning in dict.fromkeys(more) if warning not in shown]
    for warning in fresh:
        warn(warning)
    return tuple(dict.fromkeys([*shown, *fresh]))


def warn(message: str) -> None:
    """Show one warning on stderr."""
    write_message(f"warning: {visible_lines(message, indent='  ')}")
