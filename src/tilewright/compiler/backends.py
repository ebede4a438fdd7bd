"""What TVM loads when it is imported, and worker processes leave until something needs it.

TVM's own start registers the tools of nine kinds of devices. Most of that are names for scripts in
CUDA, and for each that its C++ side does not have it raises an error, the first of which reads the
symbols of every library: together half of a worker's start, for nothing that a CPU's kernel needs.
`core.processes` tells TVM to leave it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import tvm.base
from tvm.backend import _autoload_backends as autoload
from tvm.backend.loader import is_loaded
from tvm_ffi.libinfo import load_lib_ctypes

_MORE_FUNCTIONS = "tvm_runtime_extra"
_LOADED = tvm.base._LOADED_LIBS  # noqa: SLF001 - TVM has no other way to ask


def _load_functions() -> None:
    """Load the functions that kernels for CPUs call by name: sorting, random numbers."""
    if _MORE_FUNCTIONS not in _LOADED:
        folder = Path(_LOADED["tvm_runtime"]._name).resolve().parent
        _LOADED[_MORE_FUNCTIONS] = load_lib_ctypes(
            package="tvm",
            target_name=_MORE_FUNCTIONS,
            extra_lib_paths=[folder],
            mode="RTLD_LOCAL",
        )


@cache
def load_backends() -> None:
    """Load what TVM and packages that extend it know of devices other than CPUs, if its import did
    not."""
    if not any(map(is_loaded, autoload._BUILTIN_BACKENDS)):
        autoload._load_builtin_backends()
        for offered in entry_points(group="tvm.backends"):
            offered.load()()


_load_functions()
