"""A network as launches of CUDA kernels: what is loaded onto a GPU and run there, as data.

    inputs     image  float32[1,3,32,32]        at  input 0
    launches   conv   kernel_0 <<<(98,1,1), (8,16,1)>>> (input 0, constant 0, constant 1, arena 0)
               fc     kernel_1 <<<(10,1,1), (64,1,1)>>> (arena 0, constant 2, output 0)
    outputs    logits float32[1,10]             at  output 0

Every array that a kernel is given has a place that is known before: in the arena, where all that
calls hand to each other lies, or in an input, an output, a constant. So all launches can be put
into one CUDA graph, and a run copies inputs, starts the graph and copies outputs. A file holds one
network: a zip archive of `network.json`, and for each kernel its cubin and the CUDA C++ of which
that was made. TVM is not needed to read or to run it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from tilewright.core import codec
from tilewright.core.errors import DamagedArtifact
from tilewright.graph.network import TensorType
from tilewright.hardware.gpus import CudaLaunch

LIBRARY = "model.cuda"
"""The file of a network for a GPU."""
_CONTENT = "network.json"
FORMAT = 1
"""Raised when a file is written otherwise."""
_ALIGNMENT_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an array lies: so many bytes into the arena, or into the memory of one of the
    constants, inputs or outputs, which are counted; and its size."""

    memory: Literal["arena", "constant", "input", "output"]
    number: int = 0
    offset_bytes: int = 0
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTensor:
    """An input, an output or a constant: name, type, and the place where it is read or written."""

    name: str
    type: TensorType
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLaunch:
    """A launch of a kernel of module number `module`, part of call number `call`; `arrays` are the
    places of those that its arguments name."""

    call: int
    module: int
    launch: CudaLaunch
    arrays: Mapping[str, Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCheck:
    """A word of the arena that is not zero after a run in which a call was given an index outside
    of its range; `message` says which."""

    place: Place
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaModule:
    """A kernel's CUDA C++, and the cubin that was made of it for the network's architecture."""

    name: str
    source: str = field(default="", repr=False)
    binary: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaNetwork:
    """A network for GPUs of one architecture, `sm_90` say.

    `calls` are the names of the plan's calls with the symbols of their kernels, in order;
    `workspaces` are the bytes that the kernels of each symbol keep in the arena for themselves.
    """

    arch: str
    arena_bytes: int
    workspaces: Mapping[str, int]
    inputs: tuple[PlacedTensor, ...]
    outputs: tuple[PlacedTensor, ...]
    constants: tuple[PlacedTensor, ...]
    calls: tuple[tuple[str, str], ...]
    launches: tuple[PlacedLaunch, ...]
    checks: tuple[IndexCheck, ...]
    modules: tuple[CudaModule, ...]
    format: int = FORMAT

    @property
    def memory_bytes(self) -> int:
        """What a GPU holds for it beside the code of its kernels: arena, constants, and the memory
        of inputs and outputs."""
        return sum(self.sizes_bytes.values())

    @property
    def sizes_bytes(self) -> Mapping[tuple[str, int], int]:
        """The size of each piece of memory, by its kind and number, in whole 256 bytes."""
        ports = (("constant", self.constants), ("input", self.inputs), ("output", self.outputs))
        sizes = {("arena", 0): self.arena_bytes}
        sizes |= {
            (kind, number): tensor.type.bytes
            for kind, tensors in ports
            for number, tensor in enumerate(tensors)
            if (tensor.place.memory, tensor.place.number) == (kind, number)
        }
        return {key: aligned(size) for key, size in sizes.items()}


def aligned(size_bytes: int) -> int:
    """A size in the steps in which a GPU's memory is given out; at least one."""
    return max(1, -(-size_bytes // _ALIGNMENT_BYTES)) * _ALIGNMENT_BYTES


def write_network(network: CudaNetwork, path: Path) -> None:
    """Write the file of a network. Raises OSError for what the file system refuses."""
    bare = tuple(CudaModule(name=module.name) for module in network.modules)
    files = {_CONTENT: codec.encode(replace(network, modules=bare))}
    for module in network.modules:
        files[f"{module.name}.cubin"] = module.binary
        files[f"{module.name}.cu"] = module.source.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            # without a date: equal networks are equal files
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    path.write_bytes(buffer.getvalue())


def read_network(path: Path) -> CudaNetwork:
    """The network in a file. Raises DamagedArtifact for one that is cut short, or was changed, or
    is something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            bare = codec.decode(archive.read(_CONTENT), CudaNetwork)
            modules = tuple(
                CudaModule(
                    name=module.name,
                    source=archive.read(f"{module.name}.cu").decode(),
                    binary=archive.read(f"{module.name}.cubin"),
                )
                for module in bare.modules
            )
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, msgspec.DecodeError) as error:
        raise DamagedArtifact(path, str(error)) from error
    if bare.format != FORMAT:
        raise DamagedArtifact(path, f"its format is {bare.format}, not {FORMAT}")
    network = replace(bare, modules=modules)
    _require_whole(network, path)
    return network


def _require_whole(network: CudaNetwork, path: Path) -> None:
    """Raise DamagedArtifact where something is named that is not there."""
    sizes = network.sizes_bytes
    placed = [each.place for each in (*network.inputs, *network.outputs, *network.constants)]
    placed += [check.place for check in network.checks]
    for each in network.launches:
        placed += each.arrays.values()
        named = {given for given in each.launch.arguments if isinstance(given, str)}
        known = each.module < len(network.modules) and each.call < len(network.calls)
        if min(each.module, each.call) < 0 or not known or named - each.arrays.keys():
            raise DamagedArtifact(path, f"a launch of {each.launch.kernel!r} is not whole")
    for place in placed:
        size = sizes.get((place.memory, place.number), -1)
        if not 0 <= place.offset_bytes <= place.offset_bytes + place.bytes <= size:
            raise DamagedArtifact(path, f"{place} is outside of the network's memory")
