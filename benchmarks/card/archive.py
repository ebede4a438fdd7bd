"""Kernels in a file that is brought to a machine with a GPU: lines, appended as they are made.

A line is a kernel, a cubin that was compiled later, or something wanted: a part of the measurements
names a kernel, and says with labels what it stands for.
"""

from __future__ import annotations

import json
import lzma
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import numpy as np

from tilewright.compiler.cuda.driver import Driver
from tilewright.compiler.cuda.kernels import CudaKernel
from tilewright.core.codec import convert, digest, encode, to_builtins
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload, parse_workload
from tilewright.hardware.gpus import CudaLaunch, CudaProgram
from tilewright.hardware.target import parse_gpu

Labels = Mapping[str, Any]
SIMULATED = "simulated"
MOST_BYTES = 60 << 20
"""What can be brought to the machine, all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A kernel that needs no compiler any more once it has its `binary`."""

    key: str
    model: str
    workload: str
    candidate: Candidate
    source: str
    launches: tuple[CudaLaunch, ...]
    workspaces: Mapping[str, tuple[int, str]]
    types: tuple[tuple[tuple[int, ...], str], ...]
    kernel_hash: str
    build_s: float
    binary: bytes = b""

    def kernel(self, open_driver: Callable[[], Driver]) -> CudaKernel:
        """What runs."""
        return CudaKernel(
            open_driver=open_driver,
            program=CudaProgram(
                source=self.source, launches=self.launches, workspaces=self.workspaces
            ),
            binary=self.binary,
            types=self.types,
            kernel_hash=self.kernel_hash,
            build_s=self.build_s,
            workload=self.task,
            candidate=self.candidate,
        )

    @property
    def arch(self) -> str:
        """The architecture that it is compiled for."""
        return parse_gpu(f"cuda -model={self.model}").arch

    @property
    def task(self) -> Workload:
        """What it computes."""
        return parse_workload(self.workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A measurement that a part makes: of which kernel, and what that stands for. `failure` is why
    there is none."""

    part: str
    key: str
    labels: Labels
    failure: str = ""

    @property
    def name(self) -> str:
        """What results are kept by."""
        return digest(encode([self.part, self.key, dict(self.labels)]))


def key_of(workload: Workload, candidate: Candidate, arch: str) -> str:
    """The name of a kernel in the file."""
    return digest(workload.text.encode() + encode(candidate) + arch.encode())


class Archive:
    """The file, read once; what is added is appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._packed: dict[str, dict[str, Any]] = {}
        self.wanted: dict[str, Wanted] = {}
        if path.exists():
            for line in lines(path):
                self._take(line)

    def __contains__(self, key: str) -> bool:
        return key in self._packed

    def add(self, kernel: Prepared) -> None:
        """Append a kernel."""
        fields = to_builtins(replace(kernel, source="", binary=b""))
        texts = {name: _packed(getattr(kernel, name)) for name in ("source", "binary")}
        self._append({"kind": "kernel", **fields, **texts})

    def add_binary(self, key: str, binary: bytes) -> None:
        """Append the cubin of a kernel that is there without one."""
        self._append({"kind": "binary", "key": key, "binary": _packed(binary)})

    def want(self, wanted: Wanted) -> None:
        """Append what a part measures."""
        self._append({"kind": "wanted", **to_builtins(wanted)})

    def kernel(self, key: str) -> Prepared:
        """A kernel by its name; KeyError."""
        fields = dict(self._packed[key])
        source, binary = (decompress(b64decode(fields[name])) for name in ("source", "binary"))
        plain = convert(fields | {"source": source.decode(), "binary": ""}, Prepared)
        return replace(plain, binary=binary)

    def of(self, part: str) -> list[Wanted]:
        """What a part measures, in the order in which it was prepared."""
        return [wanted for wanted in self.wanted.values() if wanted.part == part]

    def without_binary(self) -> Iterator[Prepared]:
        """Kernels that are only text so far."""
        nothing = _packed(b"")
        names = [key for key, fields in self._packed.items() if fields["binary"] == nothing]
        yield from map(self.kernel, names)

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        fields = dict(line)
        kind = fields.pop("kind")
        if kind == "wanted":
            wanted = convert(fields, Wanted)
            self.wanted[wanted.name] = wanted
        elif kind == "kernel":
            self._packed[fields["key"]] = fields
        else:
            self._packed[fields["key"]]["binary"] = fields["binary"]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, which may be packed (.xz); a last one that a kill cut short is left
    out."""
    packed = path.suffix == ".xz"
    with lzma.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def same(usual: Sequence[Sequence[float]], found: dict[str, Any]) -> dict[str, Any]:
    """Whether outputs are the same, and the largest difference by the largest value."""
    pairs = [(np.array(a), np.array(b)) for a, b in zip(usual, found["values"], strict=True)]
    errors = [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs]
    return {"bit_for_bit": all(np.array_equal(a, b) for a, b in pairs), "error": max(errors)}


def _packed(content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    return b64encode(compress(data, 9)).decode()
