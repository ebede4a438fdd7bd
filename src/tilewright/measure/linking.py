"""What goes wrong when a compiled network is linked and written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tilewright.core.errors import LinkError

__all__ = ["LinkError", "linked"]

_LINKING = "Command line:"
"""What TVM says when the compiler that it links with fails: which command, and its output."""
_Written = TypeVar("_Written")


def linked(write: Callable[[], _Written], path: Path | str) -> _Written:
    """What `write` answers, which links and writes to `path`. What the file system refuses comes
    out as an OSError, what the compiler that links does not do as a LinkError."""
    try:
        return write()
    except FileNotFoundError as error:
        raise LinkError(f"{error.filename}: {error.strerror}") from error
    except RuntimeError as error:
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
            if os.strerror(number) in str(error):
                raise OSError(number, os.strerror(number), str(path)) from error
        if _LINKING in str(error):
            raise LinkError(" ".join(str(error).split())) from error
        raise
