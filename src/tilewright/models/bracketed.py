"""`NAME[key=value,...]`: how single operators and configurations are written."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tilewright.core.errors import UsageError, close_matches
from tilewright.models.naming import quoted

Value = int | tuple[int, ...]

_VALUE = re.compile(r"-?\d+(x-?\d+)*")


def split_brackets(prefix: str, text: str) -> tuple[str, str]:
    """The name and what the brackets hold, of the text after `prefix:`.

    Raises UsageError where the bracket is not closed.
    """
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise UsageError(f"{quoted(f'{prefix}:{text}')} does not end with ']'")
    return name, rest.removesuffix("]")


def read_values(
    owner: str, text: str, known: Collection[str], listed: Collection[str]
) -> dict[str, Value]:
    """The values between the brackets by key, those of `listed` keys as tuples.

    `owner` is what the error names, such as `op:conv2d`. Raises UsageError for keys that are not
    known or come twice, and for what is no number or shape.
    """
    values: dict[str, Value] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (item.strip() for item in part.partition("="))
        if key not in known:
            raise UsageError(
                f"{owner} has no parameter {quoted(key)}", hint=close_matches(key, known)
            )
        if not equals or not _VALUE.fullmatch(value):
            raise UsageError(
                f"{owner}: {quoted(part)} is no number or shape",
                hint="Write numbers as k=3 and shapes as shape=1x64x56x56.",
            )
        if key in values:
            raise UsageError(f"{owner}: {key} is given twice")
        numbers = tuple(int(item) for item in value.split("x"))
        if key not in listed and len(numbers) != 1:
            raise UsageError(f"{owner}: {key} is one number, not {quoted(value)}")
        values[key] = numbers if key in listed else numbers[0]
    return values


def label(name: str, given: Mapping[str, Value]) -> str:
    """A name for files and reports: `conv2d`, {"c": 64} → `conv2d-c64`."""
    return "-".join([name, *(f"{key}{shown(value)}" for key, value in given.items())])


def shown(value: Value | None) -> str:
    """A value as it is written between brackets."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
