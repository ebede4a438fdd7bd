"""How results show themselves: at a prompt as text, in a notebook as HTML.

How a result looks is decided in a room above this one, which says so with `show_by`; before that,
and for kinds it does not know, a result is its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, cast

Show = Callable[[object], str | None]
"""Shows a result; None for a kind that it does not know."""


class Displayed:
    """A result that shows itself; a base of frozen dataclasses with `repr=False`."""

    __slots__ = ()
    _text: ClassVar[Show | None] = None
    _html: ClassVar[Show | None] = None

    def __repr__(self) -> str:
        shown = Displayed._text(self) if Displayed._text is not None else None
        if shown is not None:
            return shown
        own = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(cast(Any, self)))
        return f"{type(self).__name__}({', '.join(own)})"

    def _repr_html_(self) -> str | None:
        return Displayed._html(self) if Displayed._html is not None else None


def show_by(*, text: Show, html: Show) -> None:
    """Have results shown by these from now on: lines for a terminal, and a fragment of a page in
    which every name is escaped."""
    Displayed._text = text  # pyright: ignore[reportPrivateUsage] - this module's own
    Displayed._html = html  # pyright: ignore[reportPrivateUsage] - this module's own
