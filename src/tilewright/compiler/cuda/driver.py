"""What is needed of a GPU's driver: memory, kernels, streams, events, graphs.

    driver = open_driver(target)                          NVIDIA's, in this process
    module = driver.load(program.source, binary)          a cubin
    memory = driver.allocate(8192)
    driver.upload(memory.part(0, 4096), array)
    driver.launch(module, launch, {"in": memory.part(0, 4096), "out": memory.part(4096, 4096)})
    driver.download(memory.part(4096, 4096), result)      waits for all that was asked before

    graph = driver.captured(lambda: driver.launch(...))   asked once,
    driver.replay(graph)                                  done as often as wanted

All is done in order, and nothing waits but what says so. Work that need not be in order goes to
other streams, which events tie to the first one. `compiler.cuda.nvidia` is NVIDIA's driver;
`tilewright.testing.simulated_driver` executes kernels on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.core.errors import ProcessSpoilt, TargetError
from tilewright.graph.network import Array
from tilewright.hardware.cards import Card
from tilewright.hardware.gpus import CudaLaunch

Module = Any
"""The kernels of one program on the GPU; a driver's own."""
Stream = Any
"""Work in order; None stands for the driver's first stream."""
Event = Any
"""A moment in a stream."""
Graph = Any
"""Work that can be done again and again without being asked for piece by piece."""


class DriverError(TargetError):
    """The driver refused something: `name` is its own name of the error, `CUDA_ERROR_…`."""

    def __init__(self, name: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{name}: {message}", hint=hint)
        self.name = name


class StickyFault(DriverError, ProcessSpoilt):
    """A kernel did what leaves its process without the GPU: an illegal address, say. Every later
    request fails with the same error until the process ends."""


class OutOfDeviceMemory(MemoryError):
    """The GPU has not as much memory left as was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Some bytes of a GPU's memory."""

    address: int
    bytes: int

    def part(self, offset: int, size: int) -> Memory:
        """`size` bytes from `offset` on. Raises ValueError for what is not within."""
        if not 0 <= offset <= offset + size <= self.bytes:
            raise ValueError(f"bytes {offset} to {offset + size} are not within {self.bytes}")
        return Memory(address=self.address + offset, bytes=size)


def check_fits(memory: Memory, array: Array) -> None:
    """Raise ValueError where an array does not lie side by side, or has not as many bytes as the
    memory that it is copied to or from."""
    if not array.flags.c_contiguous or array.nbytes != memory.bytes:
        raise ValueError(f"{array.nbytes} bytes of an array do not fit {memory.bytes} of the GPU's")


class Driver(Protocol):
    """One GPU, and the work that this process gives it.

    Methods raise `DriverError` for what the driver refuses, `OutOfDeviceMemory`, and `StickyFault`
    where a kernel spoilt the process; as kernels run while others are asked for, that may be said
    by any later call.
    """

    @property
    def card(self) -> Card:
        """The GPU."""
        ...

    def free_bytes(self) -> int:
        """Bytes of its memory that nobody has."""
        ...

    def load(self, source: str, binary: bytes) -> Module:
        """The kernels of a program, as CUDA C++ and as a cubin for the GPU's architecture. They
        stay for as long as the module is kept."""
        ...

    def allocate(self, size: int) -> Memory:
        """Bytes of memory, aligned to 256; what they hold is not defined."""
        ...

    def release(self, memory: Memory) -> None:
        """Give memory back that `allocate` gave, when all work that was asked for is done."""
        ...

    def upload(self, memory: Memory, array: Array) -> None:
        """Copy an array there, in order with other work. Raises ValueError where sizes differ."""
        ...

    def download(self, memory: Memory, array: Array) -> None:
        """Copy into an array, and wait for it. Raises ValueError where sizes differ."""
        ...

    def copy(self, goal: Memory, source: Memory) -> None:
        """Copy what lies on the GPU to another place there, as many bytes as that has."""
        ...

    def fill(self, memory: Memory, byte: int, stream: Stream = None) -> None:
        """Set each byte."""
        ...

    def launch(
        self,
        module: Module,
        launch: CudaLaunch,
        arrays: Mapping[str, Memory],
        stream: Stream = None,
    ) -> None:
        """Start a kernel; `arrays` are those that its arguments name, others may be among them."""
        ...

    def stream(self) -> Stream:
        """Another stream."""
        ...

    def event(self) -> Event:
        """An event."""
        ...

    def record(self, event: Event, stream: Stream = None) -> None:
        """Let the event be the moment at which all is done that the stream was asked for."""
        ...

    def wait(self, event: Event, stream: Stream = None) -> None:
        """Let the stream go on only after the event; this process does not wait."""
        ...

    def elapsed_s(self, first: Event, second: Event) -> float:
        """Seconds between two recorded events; waits for the second one."""
        ...

    def captured(self, work: Callable[[], None]) -> Graph:
        """The launches that `work` asks for, of the first stream and of those that wait for events
        of it and are waited for in the end; none of them is done now."""
        ...

    def replay(self, graph: Graph) -> None:
        """Do the work of a graph, in order with the first stream's."""
        ...

    def synchronise(self) -> None:
        """Wait until all is done."""
        ...
