"""What people hand to Python functions, as the rooms below want it; anything else is a UsageError.

Text stands for every path, one name where several may stand, and None for the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from operator import index
from pathlib import Path
from typing import Any, SupportsFloat, TypeVar, cast

from tilewright.core.errors import UsageError, close_matches, quoted

Text = str | os.PathLike[str]
"""A path as people write it; `~` is the home folder."""

Error = float | str
"""An allowed error: relative, 1e-4, or as a ratio of signal to noise, "30dB"."""

_Kind = TypeVar("_Kind")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_DECIBELS = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?dB", re.IGNORECASE)


def path_of(value: object, name: str) -> Path:
    """A path; `~` at its beginning is the home folder, as in a shell."""
    if not isinstance(value, (str, os.PathLike)):
        raise _wrong(name, "a path (text or os.PathLike)", value)
    plain = cast("object", os.fspath(cast("Text", value)))
    if not isinstance(plain, str) or not plain:
        raise _wrong(name, "a path (text or os.PathLike)", plain)
    try:
        return Path(plain).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{name} {plain!r}: {error}") from None


def path_or_none(value: object, name: str) -> Path | None:
    """The same where nothing need be given."""
    return None if value is None else path_of(value, name)


def location_of(value: object, name: str) -> str:
    """A path or `SCHEME:REST`, as it was written but for a `~` at its beginning."""
    path = path_of(value, name)
    text = os.fspath(cast("Text", value))
    return str(path) if text.startswith("~") else text


def text_of(value: object, name: str) -> str:
    """A text."""
    return one_of(value, name, str, "text")


def text_or_none(value: object, name: str) -> str | None:
    """The same where nothing need be given."""
    return None if value is None else text_of(value, name)


def texts_of(value: object, name: str) -> tuple[str, ...]:
    """Several texts, or one; None is none."""
    return _several(value, name, text_of)


def paths_of(value: object, name: str) -> tuple[Path, ...]:
    """Several paths, or one. Raises UsageError for none."""
    found = _several(value, name, path_of)
    if not found:
        raise _wrong(name, "a path, or several", value)
    return found


def count_of(value: object, name: str, least: int = 0) -> int:
    """A whole number, numpy's too, not below `least`."""
    try:
        count = -1 if isinstance(value, bool) else index(cast("Any", value))
    except TypeError:
        count = -1
    if count < least or isinstance(value, bool):
        raise _wrong(name, f"a whole number from {least}", value)
    return count


def counts_of(value: object, name: str, least: int = 0) -> tuple[int, ...]:
    """Several whole numbers, or one; None is none."""
    return _several(value, name, lambda each, what: count_of(each, what, least))


def truth_of(value: object, name: str) -> bool:
    """True or False."""
    return one_of(value, name, bool, "True or False")


def kept_names(wishes: object, kind: str = "float32") -> tuple[str, ...]:
    """The names of `float32:NAME`, of one wish or several. Raises UsageError for other types."""
    given = texts_of(wishes, "keep")
    for wish in given:
        found, colon, name = wish.partition(":")
        if found != kind or not name:
            raise UsageError(
                f"{wish!r} cannot be kept: no kernels keep what others compute in {quoted(found)}"
                if colon and name
                else f"{wish!r} keeps nothing: it lacks a type, or a name",
                hint=f"Write {kind}:NAME, with the name of a node or a tensor; {kind} is the "
                "only type that is known here.",
            )
    return tuple(wish.partition(":")[2] for wish in given)


def error_of(value: object, name: str = "max_error") -> float:
    """An allowed relative error: a finite number above 0, as text too. Of a ratio of signal to
    noise, `30dB`, it is the root mean square of the noise relative to that of the signal, to which
    bounds of kernels are held: they are of single elements, and have no ratio."""
    ratio_db = decibels_of(value)
    if ratio_db is not None:
        return 10.0 ** (-ratio_db / 20.0)
    numeric = None if isinstance(value, bool) else value
    if isinstance(value, str):
        numeric = float(value) if _NUMBER.fullmatch(value.strip()) else None
    number = float(numeric) if isinstance(numeric, SupportsFloat) else 0.0
    if not (isfinite(number) and number > 0):
        raise UsageError(
            f"{name} must be a number above 0, or a ratio of signal to noise such as 30dB, "
            f"not {_shown(value)}."
        )
    return number


def decibels_of(value: object) -> float | None:
    """The decibels of a ratio of signal to noise, `30dB`; None for everything else."""
    found = _DECIBELS.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) if found else None


def one_of(value: object, name: str, kind: type[_Kind], what: str) -> _Kind:
    """A value of a class; `what` says how one is made."""
    if not isinstance(value, kind):
        raise _wrong(name, what, value)
    return value


def named_of(value: object, name: str) -> Mapping[str, Any]:
    """A mapping from names."""
    if not isinstance(value, Mapping):
        raise _wrong(name, "a dictionary by name", value)
    found = cast("Mapping[object, Any]", value)
    return {text_of(key, f"a name in {name}"): item for key, item in found.items()}


def require_known(given: Mapping[str, object], wishes: type) -> None:
    """Raise UsageError for an argument that is none of a TypedDict's."""
    for name in set(given) - set(known := wishes.__annotations__):
        raise UsageError(f"there is no argument {name!r}", hint=close_matches(name, known))


def _several(
    value: object, name: str, convert: Callable[[object, str], _Kind]
) -> tuple[_Kind, ...]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return (convert(cast("object", value), name),)
    return tuple(convert(each, name) for each in cast("Iterable[object]", value))


def _wrong(name: str, wanted: str, value: object) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {_shown(value)}.")


def _shown(value: object) -> str:
    """A value as messages show it: short ones as they are, others by their kind."""
    if value is None or isinstance(value, (str, int, float)):
        return repr(value) if len(repr(value)) <= 80 else f"a long {type(value).__name__}"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
