"""Data on stdout, everything else on stderr, whoever writes it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

from tilewright.core.errors import OutputError
from tilewright.report.escape import visible_lines


def never_fail_on_encoding() -> None:
    """Write what the terminal's encoding lacks as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def stdout_for_data() -> Generator[None]:
    """While work is done, send what it writes on stdout to stderr.

    This reaches libraries in C++ and child processes too: they get the file descriptor of stderr.
    """
    kept = _turn_descriptor()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def _turn_descriptor() -> int | None:
    """Point descriptor 1 at stderr and return a copy of what it was, None where it is not ours."""
    try:
        if sys.stdout.fileno() != 1 or sys.stderr.fileno() != 2:
            return None
        sys.stdout.flush()
        kept = os.dup(1)
    except (OSError, ValueError, AttributeError):
        return None
    os.dup2(2, 1)
    return kept


def write_data(text: str) -> None:
    """Write data on stdout; a reader that went away is not an error.

    Raises OutputError when the file behind stdout cannot take it.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


def write_message(text: str) -> None:
    """Write one message on stderr; nothing can be done when that fails."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def warn(message: str) -> None:
    """Show one warning on stderr."""
    write_message(f"warning: {visible_lines(message, indent='  ')}")


def silence(stream: TextIO) -> None:
    """Let a broken stream swallow the rest, so that closing it at exit does not complain."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
