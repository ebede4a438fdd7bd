"""The items of a JSON list, one by one, so that a file cut short gives those before the cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from tilewright.store.interchange.lines import Json

_SPACE = " \t\r\n"


def array_items(text: str, start: int) -> Iterator[Json | None]:
    """The objects of the first list behind `start`; None for an item that is none.

    Ends at the end of the list. Where the text breaks off or stops being JSON, one None comes
    last.
    """
    decoder = json.JSONDecoder()
    position = text.find("[", start) + 1
    if position == 0:
        yield None
        return
    while True:
        while position < len(text) and text[position] in _SPACE + ",":
            position += 1
        if position < len(text) and text[position] == "]":
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            yield None
            return
        yield cast(Json, value) if isinstance(value, dict) else None
