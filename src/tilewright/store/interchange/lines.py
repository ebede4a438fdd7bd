"""What a reader gets out of a file: one line after the other, understood or with a reason; and how
lines are written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewright.core.codec import to_builtins
from tilewright.core.errors import ModelError, TilewrightError
from tilewright.core.records import Device, Placement

if TYPE_CHECKING:
    from tilewright.graph.workload import Workload

Json = dict[str, Any]

IMPORTED = "imported:"
"""What the kernel hash of a record starts with when no kernel of ours was timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A record of a file, as an entry (`store.rows`), or the reason why it is none.

    `number` counts lines from 1 (rows of a table, results of a T4 file); a header has a number
    too. `support` are the devices and workloads the record speaks of. `foreign` says that another
    program made the record.
    """

    number: int
    record: Json | None = None
    reason: str = ""
    support: tuple[Json, ...] = ()
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file to read. `task` and `placement` say what a log means that does not tell itself."""

    path: Path
    task: Workload | None = None
    placement: Placement | None = None


class NotUnderstood(ModelError):
    """A line cannot be taken in; the message is the reason."""


def understood(
    items: Iterable[tuple[int, Any]], read: Callable[[int, Json], Line]
) -> Iterator[Line]:
    """What `read` makes of each numbered object of a file; the reason where it is none, or where
    `read` raises an error of ours."""
    for number, item in items:
        try:
            if not isinstance(item, dict):
                raise NotUnderstood("not a JSON object; is the file cut short?")
            line = read(number, cast(Json, item))
        except TilewrightError as error:
            line = Line(number=number, reason=error.message)
        yield line


def json_lines(texts: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, Any]]:
    """The values in lines that are not empty, numbered from `first`; None for what is no JSON."""
    return ((n, json_value(text)) for n, text in enumerate(texts, start=first) if text.strip())


def json_items(text: str, start: int) -> Iterator[tuple[int, Any]]:
    """The values of the first list behind `start`, numbered from 1.

    A file that was cut short gives those before the cut: where the text breaks off or stops being
    JSON, one None comes last.
    """
    decoder = json.JSONDecoder()
    position = text.find("[", start) + 1 or len(text)
    for number in count(1):
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        if text.startswith("]", position):
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            yield number, None
            return
        yield number, value


def json_value(text: str | bytes) -> Any:
    """The JSON value in a line; None when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def write_texts(path: Path, texts: Iterable[str], *, list_in: str = "") -> int:
    """Write texts as lines, or as the list that an object ends with which begins with `list_in`;
    returns how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(list_in)
        for count, text in enumerate(texts, start=1):
            before = ",\n" if count > 1 else "\n"
            file.write(before + text if list_in else text + "\n")
        file.write("\n]}\n" if list_in else "")
    return count


def device_entry(device: Device) -> Json:
    """A device as an entry that comes along with a record."""
    return {"record": "device", **to_builtins(device)}


def mapping(value: object, what: str) -> Mapping[str, Any]:
    """`value` as a JSON object. Raises `NotUnderstood`."""
    if not isinstance(value, dict):
        raise NotUnderstood(f"{what} is no object")
    return cast(Json, value)


def sequence(value: object, what: str) -> list[Any]:
    """`value` as a JSON list. Raises `NotUnderstood`."""
    if not isinstance(value, list):
        raise NotUnderstood(f"{what} is no list")
    return cast("list[Any]", value)


def whole(value: object, what: str, *, least: int = 0) -> int:
    """`value` as a whole number from `least` up to 2^31. Raises `NotUnderstood`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
        raise NotUnderstood(f"{what} is {value!r:.40}, not a whole number from {least}")
    return value


def finite(value: object, what: str) -> float:
    """`value` as a finite number. Raises `NotUnderstood`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotUnderstood(f"{what} is {value!r:.40}, not a number")
    if not abs(value) <= sys.float_info.max:
        raise NotUnderstood(f"{what} is not finite")
    return float(value)


def seconds(values: object, what: str, *, scale: float = 1.0) -> tuple[float, ...]:
    """Positive times in seconds; those in the file are multiplied by `scale`."""
    found = tuple(finite(value, what) * scale for value in sequence(values, what))
    if not found or min(found) <= 0:
        raise NotUnderstood(f"{what} holds no positive times")
    return found
