"""A GPU's driver without a GPU: kernels are executed on the CPU when somebody reads what they
wrote, and a clock tells what each launch is said to take.

    driver = SimulatedDriver()
    driver = SimulatedDriver(faults={"launch": StickyFault("CUDA_ERROR_ILLEGAL_ADDRESS", "…")})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.compiler.cuda.driver import Memory, OutOfDeviceMemory, Stream, check_fits
from tilewright.graph.network import Array
from tilewright.hardware.cards import Card
from tilewright.hardware.gpus import CudaLaunch
from tilewright.testing.cuda_execution import cuda_executable

H100 = Card(
    name="NVIDIA H100 80GB HBM3",
    identity="0123456789abcdef0123456789abcdef",
    capability=(9, 0),
    multiprocessors=132,
    memory_bytes=80 << 30,
    l2_bytes=50 << 20,
    clock_hz=1.98e9,
    bytes_per_s=3.35e12,
)
"""A card as NVIDIA's driver describes it."""

_ALIGNMENT = 256
_UNDEFINED = 0xFF
"""A byte of memory that nobody wrote: floats made of it are NaN."""

_Work = Callable[[], None]


@dataclass(slots=True)
class _Moment:
    """A simulated event."""

    at_s: float = 0.0


class SimulatedDriver:
    """What `tilewright.compiler.cuda.driver.Driver` wants, executed on the CPU.

    Work is kept until something is downloaded; a graph that is replayed several times in a row is
    executed once, as it would write the same again, and what nobody can read any more is not
    executed. Each launch and each
    fill takes `launch_s` of a made-up clock. `faults` are raised, once each, by the methods named.
    `seed` draws the order of blocks, warps and lanes.
    """

    def __init__(
        self,
        card: Card = H100,
        *,
        launch_s: float = 1e-5,
        faults: Mapping[str, Exception] | None = None,
        seed: int = 0,
    ) -> None:
        self.card = card
        self.launches = 0
        self._launch_s = launch_s
        self._faults = dict(faults or {})
        self._seed = seed
        self._memory: dict[int, Array] = {}
        self._next = _ALIGNMENT
        self._asked: list[Sequence[_Work]] = []
        self._capturing: list[_Work] | None = None
        self._clock_s = 0.0

    def free_bytes(self) -> int:
        return self.card.memory_bytes - sum(block.nbytes for block in self._memory.values())

    def load(self, source: str, binary: bytes) -> str:
        self._fail("load")
        return source

    def allocate(self, size: int) -> Memory:
        self._fail("allocate")
        if size > self.free_bytes():
            raise OutOfDeviceMemory(f"{self.free_bytes()} of {self.card.memory_bytes} are free")
        memory = Memory(address=self._next, bytes=size)
        self._memory[self._next] = np.full(size, _UNDEFINED, np.uint8)
        self._next += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        return memory

    def release(self, memory: Memory) -> None:
        if len(self._memory) > 1:
            self._execute_all()
        self._asked.clear()
        del self._memory[memory.address]

    def upload(self, memory: Memory, array: Array) -> None:
        self._fail("upload")
        check_fits(memory, array)
        content = array.tobytes()
        self._ask([partial(self._write, memory, np.frombuffer(content, np.uint8))])

    def download(self, memory: Memory, array: Array) -> None:
        self._fail("download")
        check_fits(memory, array)
        self._execute_all()
        array.reshape(-1).view(np.uint8)[...] = self._bytes(memory)

    def copy(self, goal: Memory, source: Memory) -> None:
        content = self._bytes(source)
        self._ask([lambda: self._write(goal, content)])

    def fill(self, memory: Memory, byte: int, stream: Stream = None) -> None:
        self._do(partial(self._write, memory, np.uint8(byte)))

    def launch(
        self,
        module: str,
        launch: CudaLaunch,
        arrays: Mapping[str, Memory],
        stream: Stream = None,
    ) -> None:
        self._fail("launch")
        self.launches += 1
        self._do(partial(self._execute, module, launch, dict(arrays)))

    def stream(self) -> Stream:
        return object()

    def event(self) -> _Moment:
        return _Moment()

    def record(self, event: _Moment, stream: Stream = None) -> None:
        if self._capturing is None:
            event.at_s = self._clock_s

    def wait(self, event: _Moment, stream: Stream = None) -> None:
        """Nothing: all is done in the order in which it is asked for."""

    def elapsed_s(self, first: _Moment, second: _Moment) -> float:
        self._fail("elapsed_s")
        return second.at_s - first.at_s

    def captured(self, work: _Work) -> Sequence[_Work]:
        self._capturing = []
        try:
            work()
            return self._capturing
        finally:
            self._capturing = None

    def replay(self, graph: Sequence[_Work]) -> None:
        self._fail("replay")
        self._ask(graph)
        self._clock_s += len(graph) * self._launch_s

    def synchronise(self) -> None:
        self._fail("synchronise")

    def _execute_all(self) -> None:
        asked, self._asked = self._asked, []
        for graph in asked:
            for work in graph:
                work()

    def _do(self, work: _Work) -> None:
        if self._capturing is not None:
            self._capturing.append(work)
            return
        self._ask([work])
        self._clock_s += self._launch_s

    def _ask(self, graph: Sequence[_Work]) -> None:
        if not self._asked or self._asked[-1] is not graph:
            self._asked.append(graph)

    def _execute(self, source: str, launch: CudaLaunch, arrays: Mapping[str, Memory]) -> None:
        named = {name: arrays[name] for name in launch.arguments if isinstance(name, str)}
        given = {name: self._bytes(memory) for name, memory in named.items()}
        executable = cuda_executable(source, self.card.arch)
        executable.run([launch], given, seed=self._seed)

    def _write(self, memory: Memory, content: Array | np.uint8) -> None:
        self._bytes(memory)[...] = content

    def _bytes(self, memory: Memory) -> Array:
        """The bytes of some memory, which may be part of what was allocated. Raises ValueError for
        what nobody allocated."""
        for start, block in self._memory.items():
            if start <= memory.address and memory.address + memory.bytes <= start + block.nbytes:
                offset = memory.address - start
                return block[offset : offset + memory.bytes]
        raise ValueError(f"no memory was allocated at {memory.address:#x}")

    def _fail(self, method: str) -> None:
        fault = self._faults.pop(method, None)
        if fault is not None:
            raise fault
