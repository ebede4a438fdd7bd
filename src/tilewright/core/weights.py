"""Files of packed constants: TVM's parameter format, and one such file that several networks share.

A network that shares has a *reference* in place of its own file, which says where its constants
lie. Equal constants of all networks lie there once, under the hash of what they hold:

    {"file": "../weights-0f3a….params", "size_bytes": 102957832, "sha256": "…",
     "names": {"w_1c2d…": "c_9e8f…"}}
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from tilewright.core.element_types import element_type, is_element_type

WEIGHTS = "weights.params"
_LIST_MAGIC, _TENSOR_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
"""Names of DLPack's codes of element types; a bool has eight bits."""
_PIECE_BYTES = 1 << 20
SHARED_WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.params")
"""Names of files that several networks share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a file: `header` is what the format says of it, its values begin at `offset`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    header: bytes

    @property
    def bytes(self) -> int:
        """Size of the values."""
        return prod(self.shape) * element_type(self.dtype).bytes


class WeightsReference(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in place of a network's own weights: the file, relative to the folder of the
    reference, its size and hash, and by own name the name of each constant there."""

    file: str
    size_bytes: int
    sha256: str
    names: dict[str, str]


def reference_in(path: Path) -> WeightsReference | None:
    """The reference that a weights file is; None for one that holds its tensors itself. Raises
    ValueError for one that is damaged."""
    with path.open("rb") as file:
        if file.read(1) != b"{":
            return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=WeightsReference)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    if Path(found.file).is_absolute() or Path(found.file).parts[:-1] != ("..",):
        raise ValueError(f"{path.name} names a file elsewhere, {found.file!r}")
    return found


def stored_tensors(file: BinaryIO, size_bytes: int) -> Iterator[StoredTensor]:
    """What a file in TVM's parameter format holds, a list of names and then the tensors. Raises
    ValueError for a file that is cut short or something else."""
    magic, _, count = _numbers(file, "<QQQ")
    if magic != _LIST_MAGIC or count > size_bytes:
        raise ValueError("the weights are no list of tensors")
    names: list[str] = []
    for _ in range(count):
        (length,) = _numbers(file, "<Q")
        names.append(file.read(min(length, size_bytes)).decode())
    if _numbers(file, "<Q") != (count,):
        raise ValueError("the weights have more names than tensors, or fewer")
    for name in names:
        found = _stored_tensor(file, name)
        if found.offset + found.bytes > size_bytes:
            raise ValueError("the weights are cut short")
        file.seek(found.offset + found.bytes)
        yield found


def _stored_tensor(file: BinaryIO, name: str) -> StoredTensor:
    """The tensor that a file is at."""
    begin = file.tell()
    magic, _, _, _, rank, code, bits, lanes = _numbers(file, "<QQiiiBBH")
    if magic != _TENSOR_MAGIC or code not in _KINDS or lanes != 1 or not 0 <= rank < 32:
        raise ValueError(f"the weight {name!r} is no tensor of plain numbers")
    *shape, length = _numbers(file, f"<{rank}qq")
    dtype = "bool" if _KINDS[code] == "bool" else f"{_KINDS[code]}{bits}"
    if not is_element_type(dtype):
        raise ValueError(f"the weights are of an unknown type, {dtype}")
    offset = file.tell()
    file.seek(begin)
    header = file.read(offset - begin)
    found = StoredTensor(name=name, dtype=dtype, shape=tuple(shape), offset=offset, header=header)
    if min(shape, default=1) < 0 or length != found.bytes:
        raise ValueError(f"the size of the weight {name!r} does not fit its shape")
    return found


def _numbers(file: BinaryIO, layout: str) -> tuple[int, ...]:
    found = file.read(struct.calcsize(layout))
    if len(found) != struct.calcsize(layout):
        raise ValueError("the weights are cut short")
    return struct.unpack(layout, found)


def share(files: Sequence[Path], folder: Path) -> tuple[Path, list[WeightsReference]]:
    """Write into `folder` one file with the tensors of all `files`, equal ones once; its path, and
    the reference for each of the `files`, which lie one folder below. They may be references
    themselves. The new file is named by its hash.

    Raises ValueError for files that are damaged, OSError for what the file system refuses.
    """
    found: dict[str, tuple[Path, StoredTensor]] = {}
    names: list[dict[str, str]] = []
    for path in files:
        names.append({})
        for own, source, tensor in _tensors_of(path):
            key = f"c_{_content_digest(source, tensor)}"
            found.setdefault(key, (source, tensor))
            names[-1][own] = key
    made = folder / f".{WEIGHTS}"
    try:
        with made.open("wb") as file:
            _write(file, dict(sorted(found.items())))
        with made.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        path = made.rename(folder / f"weights-{checksum[:16]}.params")
    finally:
        made.unlink(missing_ok=True)
    size, place = path.stat().st_size, f"../{path.name}"
    return path, [
        WeightsReference(file=place, size_bytes=size, sha256=checksum, names=each) for each in names
    ]


def weights_of(folder: Path) -> Path:
    """The file in which a network's constants lie. Raises ValueError for a damaged reference."""
    reference = reference_in(folder / WEIGHTS)
    return folder / WEIGHTS if reference is None else (folder / reference.file).resolve()


def own_bytes(path: Path) -> int:
    """What a network's weights take by themselves, shared or not."""
    if reference_in(path) is None:
        return path.stat().st_size
    return sum(len(each.header) + each.bytes for _, _, each in _tensors_of(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValues:
    """The bytes of a constant, mapped from the file in which they lie, and `place`, which is the
    same for constants that networks share."""

    place: tuple[Path, int]
    bytes: npt.NDArray[np.uint8]


def values_by_name(path: Path) -> dict[str, StoredValues]:
    """A network's constants by their own names. Raises ValueError for a damaged file, OSError for
    what the file system refuses."""
    mapped = dict[Path, npt.NDArray[np.uint8]]()
    found = dict[str, StoredValues]()
    for own, source, tensor in _tensors_of(path):
        if source not in mapped:
            mapped[source] = np.memmap(source, np.uint8, "r")
        values = mapped[source][tensor.offset : tensor.offset + tensor.bytes]
        found[own] = StoredValues(place=(source.resolve(), tensor.offset), bytes=values)
    return found


def write_reference(path: Path, reference: WeightsReference) -> None:
    """Put a reference in place of a network's own file."""
    content = msgspec.to_builtins(reference)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _tensors_of(path: Path) -> Iterator[tuple[str, Path, StoredTensor]]:
    """The constants of a network by their own names: the file that holds each, and where."""
    reference = reference_in(path)
    source = path if reference is None else path.parent / reference.file
    with source.open("rb") as file:
        stored = {each.name: each for each in stored_tensors(file, source.stat().st_size)}
    names = {name: name for name in stored} if reference is None else reference.names
    for own, name in names.items():
        if name not in stored:
            raise ValueError(f"{source.name} lacks the constant {name!r}")
        yield own, source, stored[name]


def _pieces(path: Path, tensor: StoredTensor) -> Iterator[bytes]:
    """The values of a tensor, some at a time."""
    with path.open("rb") as file:
        file.seek(tensor.offset)
        for begin in range(0, tensor.bytes, _PIECE_BYTES):
            yield file.read(min(_PIECE_BYTES, tensor.bytes - begin))


def _content_digest(path: Path, tensor: StoredTensor) -> str:
    state = hashlib.blake2b(tensor.header, digest_size=16)
    for piece in _pieces(path, tensor):
        state.update(piece)
    return state.hexdigest()


def _write(file: BinaryIO, tensors: Mapping[str, tuple[Path, StoredTensor]]) -> None:
    file.write(struct.pack("<QQQ", _LIST_MAGIC, 0, len(tensors)))
    for name in tensors:
        file.write(struct.pack("<Q", len(name)) + name.encode())
    file.write(struct.pack("<Q", len(tensors)))
    for source, tensor in tensors.values():
        file.write(tensor.header)
        for piece in _pieces(source, tensor):
            file.write(piece)
