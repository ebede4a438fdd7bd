"""A network's weights in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

_LINE_BYTES = 64
_HUGE_BYTES = 2 << 20


def load_weights(path: Path) -> dict[str, Any]:
    """The tensors of a weights file, by name, one after the other in one piece of memory.

    NumPy asks Linux for huge pages for large arrays, TVM does not for its tensors. With small pages
    a network of a hundred megabytes spends one to three hundredths of its time on looking up where
    they lie.
    """
    tensors: dict[str, Any] = dict(tvm.runtime.load_param_dict_from_file(str(path)))
    sizes = {name: _size_bytes(tensor) for name, tensor in tensors.items()}
    memory = np.empty(sum(sizes.values()) + _HUGE_BYTES, np.uint8)
    at = -memory.ctypes.data % _HUGE_BYTES
    moved = {}
    for name, size in sizes.items():
        source = tensors.pop(name).numpy()
        array = memory[at : at + source.nbytes].view(source.dtype).reshape(source.shape)
        array[...] = source
        moved[name] = tvm_ffi.from_dlpack(array)
        at += size
    return moved


def _size_bytes(tensor: Any) -> int:
    """Bytes up to where the next tensor may begin."""
    size = np.dtype(str(tensor.dtype)).itemsize * int(np.prod(tensor.shape, dtype=np.int64))
    return -(-size // _LINE_BYTES) * _LINE_BYTES
