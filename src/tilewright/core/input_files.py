"""Files that a person names: looked at before they are opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.core.errors import ModelError, TilewrightError
from tilewright.core.units import format_bytes

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def require_regular(
    path: Path,
    *,
    limit_bytes: int | None = None,
    error: type[TilewrightError] = ModelError,
) -> int:
    """The size in bytes of a file that is to be read whole.

    A pipe would be waited for without end, and a device such as `/dev/zero` has none: neither is
    opened. `limit_bytes` is by default the memory of this machine.

    Raises OSError, above all FileNotFoundError, where the file cannot be looked at, and `error` for
    what is no regular file, links followed, or larger than the limit.
    """
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        kind = next((name for holds, name in _KINDS if holds(facts.st_mode)), "something else")
        raise error(f"{str(path)!r} cannot be read: it is {kind}, not a regular file")
    limit = machine_memory_bytes() if limit_bytes is None else limit_bytes
    if facts.st_size > limit:
        raise error(
            f"{str(path)!r} has {format_bytes(facts.st_size)}; at most {format_bytes(limit)} "
            "can be read here"
        )
    return facts.st_size


@contextmanager
def readable(path: Path, called: str = "") -> Generator[None]:
    """Turn what the file system refuses inside the block into `ModelError`. A device or a pipe
    raises the error of `require_regular` before the block begins. `called` is what the message
    calls the file, in place of its path."""
    try:
        require_regular(path)
        yield
    except OSError as error:
        raise ModelError(f"{called or path} cannot be read: {error.strerror or error}.") from error


def machine_memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
