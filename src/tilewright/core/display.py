"""How results show themselves: at a prompt as text, in a notebook as HTML.

How a result looks is decided in a room above this one, which says so with `show_by`; before that,
and for kinds it does not know, a result is its fields.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Protocol


class Displays(Protocol):
    """What shows results; None for a kind that it does not know."""

    def text(self, result: object) -> str | None:
        """As lines for a terminal."""
        ...

    def html(self, result: object) -> str | None:
        """As a fragment of a page, every name escaped."""
        ...


class Displayed:
    """A result that shows itself; a base of frozen dataclasses with `repr=False`."""

    __slots__ = ()
    _by: ClassVar[Displays | None] = None

    def __repr__(self) -> str:
        shown = Displayed._by.text(self) if Displayed._by is not None else None
        return _fields(self) if shown is None else shown

    def _repr_html_(self) -> str | None:
        return Displayed._by.html(self) if Displayed._by is not None else None


def show_by(displays: Displays) -> None:
    """Have results shown by these from now on."""
    Displayed._by = displays  # pyright: ignore[reportPrivateUsage] - this module's own


def _fields(result: Any) -> str:
    values = (f"{each.name}={getattr(result, each.name)!r}" for each in fields(result))
    return f"{type(result).__name__}({', '.join(values)})"
