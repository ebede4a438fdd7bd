"""What went wrong, told on stderr, and the exit code for it."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Sequence

from cyclopts import CycloptsError, UnknownCommandError, UnknownOptionError

from tilewright.cli.streams import write_message
from tilewright.core.errors import (
    InternalError,
    TilewrightError,
    UsageError,
    all_known,
    close_matches,
    near_names,
)
from tilewright.report.escape import visible, visible_lines

BUG = 70
INTERRUPTED = 130
_KEPT_NOWHERE = frozenset({"compare", "study cores"})
"""Commands whose measurements are in their answers alone."""


def tell_usage(error: CycloptsError, tokens: Sequence[str]) -> int:
    """A command line that cannot be read."""
    write_message(f"error: {visible_lines(_unread(error), indent='  ')}")
    verb = tokens[0] if tokens and not tokens[0].startswith("-") else ""
    known = error.command_chain or ()
    helps = " ".join(["tilewright", *known, "--help"]) if verb else "tilewright --help"
    write_message(f"  See {visible(helps)}")
    return UsageError.exit_code


def _unread(error: CycloptsError) -> str:
    """What is wrong with a command line; a guess at what was meant only where one is likely."""
    if isinstance(error, UnknownOptionError):
        given = (error.token.keyword or error.token.value).partition("=")[0]
        known = [name for each in error.argument_collection if each.parse for name in each.names]
        near = near_names(given.lstrip("-"), [name.lstrip("-") for name in known])
        guess = " Did you mean " + " or ".join(f"--{name}" for name in near) + "?" if near else ""
        return f"Unknown option: {given}.{guess}"
    if isinstance(error, UnknownCommandError) and error.unused_tokens and error.app is not None:
        known = [name for name in error.app if not name.startswith("-")]
        name = error.unused_tokens[0]
        guess = f"{close_matches(name, known)} " if near_names(name, known) else ""
        return f'Unknown command "{name}". {guess}{all_known(known)}'
    return str(error).strip()


def tell_known(error: TilewrightError) -> int:
    """An error raised on purpose: no traceback, except for our own bugs."""
    if isinstance(error, InternalError):
        return tell_bug(error)
    write_message(f"error: {visible_lines(error.message, indent='  ')}")
    if error.hint:
        write_message(f"  {visible_lines(error.hint, indent='  ')}")
    return error.exit_code


def tell_bug(error: BaseException) -> int:
    """Something nobody foresaw: everything that helps to find it."""
    write_message(visible_lines("".join(traceback.format_exception(error)).rstrip()))
    write_message(
        "error: this is a bug in tilewright. Please report it with the lines above and the output "
        "of `tilewright doctor`."
    )
    return BUG


def tell_interrupted(tokens: Sequence[str]) -> int:
    """Ctrl-C: what was finished is kept, and the same command goes on from there; it begins again
    where nothing is kept."""
    command = visible(shlex.join(["tilewright", *tokens]))
    if _KEPT_NOWHERE.isdisjoint({" ".join(tokens[:words]) for words in (1, 2)}):
        write_message(f"interrupted; finished measurements are kept. To go on:\n  {command}")
    else:
        write_message(f"interrupted; what was measured is not kept. To begin again:\n  {command}")
    return INTERRUPTED
