"""A network's weights in memory."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tvm_ffi

from tilewright.core.element_types import ElementType, element_type, is_element_type

_LINE_BYTES = 64
_HUGE_BYTES = 2 << 20
_LIST_MAGIC, _TENSOR_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
"""Names of DLPack's codes of element types; a bool has eight bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A tensor in a file, and where its values begin."""

    name: str
    kind: ElementType
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        return self.kind.bytes * prod(self.shape)


def load_weights(path: Path) -> dict[str, Any]:
    """The tensors of a weights file, by name, one after the other in one piece of memory.

    They lie in huge pages, for which TVM does not ask: with small ones a network of a hundred
    megabytes spends one to three hundredths of its time on looking up where they are. Each tensor
    is read to where it stays, so that none is ever in memory twice. Raises ValueError for a file
    that is cut short or something else.
    """
    with path.open("rb") as file:
        stored = list(_contents(file, path.stat().st_size))
        places = [-(-tensor.size_bytes // _LINE_BYTES) * _LINE_BYTES for tensor in stored]
        memory, at = _reserved(sum(places)), 0
        tensors: dict[str, Any] = {}
        for tensor, place in zip(stored, places, strict=True):
            values = memory[at : at + tensor.size_bytes]
            file.seek(tensor.offset)
            if file.readinto(values.data) != tensor.size_bytes:
                raise ValueError(f"{path.name} is cut short")
            tensors[tensor.name] = _as_tensor(values, tensor)
            at += place
    return tensors


def _as_tensor(values: np.ndarray, tensor: _Stored) -> Any:
    """The bytes as a tensor where they lie; types that numpy cannot hand over go as whole numbers
    of their size, and are called what they are there."""
    own = tensor.kind.library == "numpy"
    dtype = tensor.kind.numpy if own else np.dtype(f"uint{8 * tensor.kind.bytes}")
    found = tvm_ffi.from_dlpack(values.view(dtype).reshape(tensor.shape))
    return found if own else found._create_view(tensor.shape, dtype=tensor.kind.name)


def _reserved(size_bytes: int) -> np.ndarray:
    """Untouched memory in huge pages, as far as it fills whole ones; the rest is small pages."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapping = mmap.mmap(-1, size_bytes + _HUGE_BYTES, flags=private)
    memory = np.frombuffer(mapping, np.uint8)
    begin = -memory.ctypes.data % _HUGE_BYTES
    whole = size_bytes // _HUGE_BYTES * _HUGE_BYTES
    if whole:
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE, begin, whole)
    return memory[begin : begin + size_bytes]


def _contents(file: BinaryIO, size_bytes: int) -> Iterator[_Stored]:
    """What a file in TVM's parameter format holds: a list of names, then the tensors."""

    def numbers(layout: str) -> tuple[int, ...]:
        found = file.read(struct.calcsize(layout))
        if len(found) != struct.calcsize(layout):
            raise ValueError("the weights are cut short")
        return struct.unpack(layout, found)

    magic, _, count = numbers("<QQQ")
    if magic != _LIST_MAGIC or count > size_bytes:
        raise ValueError("the weights are no list of tensors")
    names: list[str] = []
    for _ in range(count):
        (length,) = numbers("<Q")
        names.append(file.read(min(length, size_bytes)).decode())
    if numbers("<Q") != (count,):
        raise ValueError("the weights have more names than tensors, or fewer")
    for name in names:
        magic, _, _, _, rank, code, bits, lanes = numbers("<QQiiiBBH")
        if magic != _TENSOR_MAGIC or code not in _KINDS or lanes != 1 or not 0 <= rank < 32:
            raise ValueError(f"the weight {name!r} is no tensor of plain numbers")
        *shape, length = numbers(f"<{rank}qq")
        kind = "bool" if _KINDS[code] == "bool" else f"{_KINDS[code]}{bits}"
        tensor = _Stored(name=name, kind=_known_type(kind), shape=tuple(shape), offset=file.tell())
        if min(shape, default=1) < 0 or length != tensor.size_bytes:
            raise ValueError(f"the size of the weight {name!r} does not fit its shape")
        if tensor.offset + length > size_bytes:
            raise ValueError("the weights are cut short")
        file.seek(length, 1)
        yield tensor


def _known_type(name: str) -> ElementType:
    if not is_element_type(name):
        raise ValueError(f"the weights are of an unknown type, {name}")
    return element_type(name)
