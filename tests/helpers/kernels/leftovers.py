"""Whether a kernel computes with what memory holds by chance.

Buffers of kernels are not empty when they are given out. Here they hold denormal numbers, with
which Intel's processors are a hundred times as slow, and the processor's own record of exceptions
tells whether any was an operand.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_STORED, _LOADED = b"\x0f\xae\x1f\xc3", b"\x0f\xae\x17\xc3"
"""`stmxcsr [rdi]; ret` and `ldmxcsr [rdi]; ret`."""
_NOTHING_RAISED, _DENORMAL_OPERAND = 0x1F80, 0x2
_CPU, _FLOAT = 1, 2
_SIZES = (1 << 22, 1 << 21, 1 << 21, 1 << 20, 1 << 20, 1 << 19)

needs_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux",
    reason="reads a register of x86, by its convention of calls on Linux",
)


@cache
def _page() -> tuple[mmap.mmap, Any, Any]:
    """Memory with both functions, which lives as long as they do."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(_STORED + _LOADED)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
    return page, kind(start), kind(start + len(_STORED))


@cache
def _workspaces() -> Any:
    import tvm

    library = ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so"))
    library.TVMBackendAllocWorkspace.restype = ctypes.c_void_p
    library.TVMBackendAllocWorkspace.argtypes = [
        ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
    ]  # fmt: skip
    library.TVMBackendFreeWorkspace.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    return library


def leave_denormals() -> None:
    """What this thread's kernels are given next as buffers holds denormal numbers."""
    library = _workspaces()
    found = [library.TVMBackendAllocWorkspace(_CPU, 0, size, _FLOAT, 32) for size in _SIZES]
    for size, start in zip(_SIZES, found, strict=True):
        ctypes.memset(start, 0, size)
        words = (ctypes.c_uint32 * (size // 4)).from_address(start)
        words[:] = [1] * (size // 4)
    for start in reversed(found):
        library.TVMBackendFreeWorkspace(_CPU, 0, start)


def meets_denormals(call: Callable[[], object]) -> bool:
    """Whether an operand of what is called, in this thread, is a denormal number."""
    _, store, load = _page()
    before, state = ctypes.c_uint32(), ctypes.c_uint32(_NOTHING_RAISED)
    store(ctypes.byref(before))
    load(ctypes.byref(state))
    try:
        call()
        store(ctypes.byref(state))
    finally:
        load(ctypes.byref(before))
    return bool(state.value & _DENORMAL_OPERAND)
