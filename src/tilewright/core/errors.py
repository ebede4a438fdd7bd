"""Errors that reach a person: what is wrong, where, what is known, what to do."""

from __future__ import annotations

from collections.abc import Iterable
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
    """A verdict that was asked for is negative, or nothing valid was found."""

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


class DamagedArtifact(ModelError):
    """A compiled network on disk is not what was written."""

    def __init__(self, place: object, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"{str(place)!r} is damaged: {reason}",
            hint=hint or "Run `tilewright optimize` again.",
        )


class StoreError(TilewrightError):
    """The database cannot be opened, read or written."""

    exit_code = 5


class OutputError(TilewrightError):
    """Results cannot be written: permission, full disk, or something in the way."""

    exit_code = 4


class InternalError(TilewrightError):
    """A bug of tilewright: a state that its own rules exclude."""

    exit_code = 70


def last_line(error: BaseException) -> str:
    """What a library's error says in its last line, where the cause stands."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def close_matches(name: str, known: Iterable[str], *, limit: int = 3) -> str:
    """A hint naming the known entries closest to `name`, or all of them when none is close."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=limit, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(near) + "?"
    return "Known: " + ", ".join(choices)
