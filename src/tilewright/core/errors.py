"""Errors that reach a person: what is wrong, where, what is known, what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import ClassVar


class TilewrightError(Exception):
    """Root of all errors tilewright raises on purpose.

    `exit_code` is the documented exit code of the command line; `hint` is a sentence or a command
    that helps.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class NegativeVerdict(TilewrightError):
    """A check that was asked for failed, or nothing valid was found."""

    exit_code = 1


class UsageError(TilewrightError):
    """The request itself is malformed: unknown name, bad flag, contradictory arguments."""

    exit_code = 2


class TargetError(TilewrightError):
    """A target or a peer cannot be used on this machine."""

    exit_code = 3


class ModelError(TilewrightError):
    """A model or another input file is missing, broken, or holds something unsupported."""

    exit_code = 4


class ProcessSpoilt(TilewrightError):
    """Something left this process unable to go on: a child ends with it, and the next request
    starts another one."""


class LinkError(Exception):
    """The compiler that links a network is not there, or failed."""


class NotCompilable(ModelError):
    """A part of a model that is as it should be and that nothing here compiles: an engine may run
    it."""


class DamagedArtifact(ModelError):
    """A compiled network on disk is not what was written."""

    def __init__(self, place: object, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"{str(place)!r} is damaged: {reason}",
            hint=hint or "Run `tilewright optimize` again.",
        )


class InputError(TilewrightError):
    """Values given to a network are not valid inputs of it, such as an index outside a table."""

    exit_code = 4


class StoreError(TilewrightError):
    """The database cannot be opened, read or written."""

    exit_code = 5


class OutputError(TilewrightError):
    """Results cannot be written: permission, full disk, or something in the way."""

    exit_code = 4


class InternalError(TilewrightError):
    """A bug of tilewright: a state that its own rules exclude."""


def quoted(name: object) -> str:
    """A name from a model file or a command line in quotes; control characters and others that
    cannot be printed are escaped."""
    return repr(str(name))


def printable(text: object) -> str:
    """What another program says, on one line and without characters that cannot be shown."""
    return quoted(" ".join(str(text).split()))[1:-1]


def first_line(error: BaseException) -> str:
    """What an error says in its first line, without a mark that announces more."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")


def last_line(error: BaseException) -> str:
    """What a library's error says in its last line, where the cause stands."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def reason_of(error: OSError) -> str:
    """What the file system refused, in words; of a disk that filled up numpy only says how much of
    an array it took."""
    if error.strerror:
        return error.strerror
    return os.strerror(errno.ENOSPC) if _NUMPY_CUT_SHORT in str(error) else str(error)


_NUMPY_CUT_SHORT = "requested and"
_SIMILAR = 0.7
_PREFIX_LENGTH = 3
_MOST_NEAR, _MOST_LISTED = 3, 100


def close_matches(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """A hint naming the known entries close to `name`, or all of them when none is.

    Close is what a slip of the fingers explains: `resnet19` for `resnet18`, `bert` for
    `bert_base`, but not `warm` for `worst`. `shown` makes a name fit for a message.
    """
    choices = sorted(known)
    near = " or ".join(map(shown, near_names(name, choices)))
    return f"Did you mean {near}?" if near else all_known(choices, shown)


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known entries close to `name`, the closest first; upper case does not count."""
    lowered = {entry.lower(): entry for entry in sorted(known)}
    wanted = name.lower()
    near = get_close_matches(wanted, lowered, n=_MOST_NEAR, cutoff=_SIMILAR)
    if len(wanted) >= _PREFIX_LENGTH:
        near += [entry for entry in lowered if entry.startswith(wanted) and entry not in near]
    return [lowered[entry] for entry in near[:_MOST_NEAR]]


def all_known(known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """A hint that lists what is known, the beginning of it where that is very much."""
    choices = [shown(entry) for entry in sorted(known)]
    if not choices:
        return "None is known."
    more = len(choices) - _MOST_LISTED
    return "Known: " + ", ".join(choices[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
