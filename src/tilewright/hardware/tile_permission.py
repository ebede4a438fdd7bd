"""Permission to use the tile registers of AMX, which Linux gives to processes that ask for it.

Registers of eight kilobytes are kept at every change of context only for who uses them (Linux 5.16
and later, `Documentation/arch/x86/xstate.rst`). Without permission the first instruction ends the
process with SIGILL. Children inherit it, other programs that a process starts do not.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18


@cache
def tiles_permitted() -> bool:
    """Ask for the tile registers; whether this process may use them, once and for all."""
    if platform.machine() != "x86_64" or os.name != "posix":
        return False
    try:
        ask = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    return ask(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
