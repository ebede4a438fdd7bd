"""Weights in huge pages.

A batch-1 network reads all of its weights once, tens to hundreds of megabytes: with pages of 4 KiB
nearly every page costs a miss in the translation buffers. Where the kernel grants huge pages on
request (`madvise`, the usual setting), one block is asked for and filled with all tensors.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import tvm_ffi

_ALIGNED_BYTES = 64


def _memory(size: int) -> mmap.mmap:
    """Zeroed bytes of this process. Shared ones, `mmap`'s default, never get huge pages."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def in_huge_pages(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The same tensors by name, copied into one block of memory, each on a cache line of its own.

    Where huge pages are not to be had, the block has ordinary ones.
    """
    offsets, size = {}, 0
    for name, tensor in tensors.items():
        offsets[name] = size
        array = tensor.numpy()
        size += -(-array.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
    if size == 0:
        return dict(tensors)
    block = _memory(size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel built without them
            block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    moved = {}
    for name, tensor in tensors.items():
        array = tensor.numpy()
        place = memory[offsets[name] : offsets[name] + array.nbytes]
        view = place.view(array.dtype).reshape(array.shape)
        view[...] = array
        moved[name] = tvm_ffi.from_dlpack(view)
    return moved
