"""Forked processes that are killed when they hang."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

TIMEOUT_S = 60.0
_SLICE_S = 0.01


def in_child(function: Callable[[], object]) -> None:
    """Call a function in a process that `fork` makes of this one; it must end well, and in time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            if code:
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(_SLICE_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"a forked process hung for {TIMEOUT_S:g} s")
