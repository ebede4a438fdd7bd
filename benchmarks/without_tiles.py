"""Run a command to which Linux refuses AMX's tile registers, as on processors that have none.

    python benchmarks/without_tiles.py tilewright compare zoo:resnet50_int8 --peers openvino

Linux on x86-64 gives these registers to processes that ask for them by `arch_prctl`. A filter of
system calls answers the command, and all processes that it starts, with EPERM, so that our kernels
and those of every peer take AVX-512 instead.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
"""`prctl`'s options, and the mode of seccomp that takes a filter."""
_ARCH_PRCTL, _REQUEST_PERMISSION = 158, 0x1023
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16
"""Where `struct seccomp_data` has them, in bytes."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def refuse_tiles() -> None:
    """From now on this process, and what it starts, gets no tile registers. Raises OSError."""
    steps = [
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_EQUAL, 0, 3, _ARCH_PRCTL),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_JUMP_IF_EQUAL, 0, 1, _REQUEST_PERMISSION),
        (_RETURN, 0, 0, _FAIL_WITH | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    instructions = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.addressof(instructions))
    system = ctypes.CDLL(None, use_errno=True)
    for words in ((_SET_NO_NEW_PRIVILEGES, 1, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program))):
        if system.prctl(*words, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no filter of system calls can be set here")


if __name__ == "__main__":
    if len(sys.argv) < 2 or os.uname().machine != "x86_64":
        sys.exit("usage, on x86-64: without_tiles.py COMMAND …")
    refuse_tiles()
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[1]} cannot be run: {error.strerror}")
