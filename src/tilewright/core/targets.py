"""What kind of processor there is, and how much of it a kernel may use: data, not types.

    target.lanes("float32")             16 with AVX-512, 4 with NEON
    target.operations_per_cycle("int8") 256 with AVX-512 VNNI
    target.cache_bytes(2)               what one core has of the second level
    Resources(cores=2, threads=2)       written `2t`

A target says nothing about how many threads run: that is `Resources`, an argument of everything
that depends on it and a column of every table that holds times. Which cores exactly were used is
a `Binding`: it is recorded, and nothing is looked up by it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from tilewright.core.codec import canonical_json
from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError

_RESOURCES = re.compile(r"(?P<threads>[1-9]\d*)t(?:(?P<cores>[1-9]\d*)c)?(?::(?P<kind>[\w-]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUnit:
    """Arithmetic that each core has.

    It takes elements of the type `element` (`tf32` are singles whose mantissas have ten bits), adds
    up in `accumulator`, and works on granules of `granule`: rows, columns and terms of a product
    (1, 16, 1 is a vector of sixteen, 16, 16, 32 a tile). `operations_per_cycle` counts
    multiplications and additions of one core.
    """

    name: str
    element: str
    accumulator: str
    granule: tuple[int, int, int]
    operations_per_cycle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """A level of memory, `L1` the nearest. `bytes` is what each of its instances holds, `cores` how
    many share one; a line is what moves at once. `bytes_per_s` is what one of them gives by the
    datasheet, 0 where none says so."""

    name: str
    bytes: int
    cores: int = 1
    line_bytes: int = 64
    bytes_per_s: float = 0.0


GPU_PIECE_BYTES = 2 << 20
"""A GPU's driver gives its memory away in pieces of that size: so it was on an H100, for each of 67
kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLimits:
    """What a GPU takes in one launch, and what one of its multiprocessors holds at a time.

    `grid` is the most blocks along x, y and z. A block has at most `block_threads` threads and
    `block_shared_bytes` of shared memory, of which only `static_shared_bytes` may be static, and a
    thread at most `thread_registers` registers of four bytes. `threads`, `blocks`, `registers` and
    `shared_bytes` are those of a multiprocessor; each block takes whole `shared_unit_bytes`, and
    `reserved_shared_bytes` more than it asks for. Threads run in warps of `warp`.
    """

    grid: tuple[int, int, int]
    block_threads: int
    block_shared_bytes: int
    static_shared_bytes: int
    thread_registers: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_shared_bytes: int
    shared_unit_bytes: int
    warp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of processor.

    `kind` is `cpu` or `cuda`; `features` are instruction sets in LLVM's spelling. Vector registers
    are those kernels may count on. `memory` goes from the nearest level outwards. `cores` is what
    the whole machine has: of a GPU its multiprocessors, each of which has the units. `tvm` is the
    JSON text of the TVM target without a number of threads. A GPU has limits of a `launch` and no
    vector registers; `clock_hz` is 0 where no datasheet says it.
    """

    kind: str = "cpu"
    model: str
    architecture: str
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    units: tuple[ComputeUnit, ...]
    memory: tuple[MemoryLevel, ...]
    cores: int
    tvm: str
    launch: LaunchLimits | None = None
    clock_hz: float = 0.0

    def lanes(self, dtype: str) -> int:
        """Elements of a type in one vector register; raises InternalError for no type."""
        return max(1, self.vector_bytes // element_type(dtype).bytes)

    def unit(self, element: str, *, tiles: bool = True) -> ComputeUnit | None:
        """The fastest unit that takes elements of a type, with or without those that multiply
        matrices (`tiles`); None where there is none."""
        found = (u for u in self.units if u.element == element and (tiles or u.granule[0] == 1))
        return max(found, key=lambda unit: unit.operations_per_cycle, default=None)

    def operations_per_cycle(self, dtype: str, *, tiles: bool = True) -> int:
        """Multiplications and additions of one core and cycle, by the fastest unit for the type,
        with or without those that multiply matrices (`tiles`).

        A type that no unit takes is converted to the one that kernels compute in; for one that has
        no unit either, a multiplication and an addition per lane and cycle are counted.
        """
        unit = self.unit(dtype, tiles=tiles)
        if unit is None:
            computed_in = element_type(dtype).computed_in
            unit = self.unit(computed_in, tiles=tiles)
            return unit.operations_per_cycle if unit else 2 * self.lanes(computed_in)
        return unit.operations_per_cycle

    @property
    def limits(self) -> LaunchLimits:
        """The limits of a launch; raises InternalError where nothing is launched."""
        if self.launch is None:
            raise InternalError(f"{self.model} launches no blocks")
        return self.launch

    def cache_bytes(self, level: int) -> int:
        """Bytes of the cache of a level, 1 the nearest; 0 where there is none."""
        return self.memory[level - 1].bytes if level <= len(self.memory) else 0

    def tvm_target(self, resources: Resources) -> str:
        """JSON text of the TVM target, of a CPU with as many threads as the resources have."""
        if self.kind != "cpu":
            return self.tvm
        return canonical_json({**json.loads(self.tvm), "num-cores": resources.threads})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """How much of a processor a kernel may use: `threads` on `cores` of them, all of one `kind`.

    `cores` are physical ones of a CPU; there are more threads than cores where two share one. The
    kind is empty where all cores of the processor are alike. Raises ValueError for fewer threads
    than cores, and for none.
    """

    cores: int
    threads: int
    kind: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= self.threads:
            raise ValueError(f"{self.threads} threads cannot use {self.cores} cores")

    def __str__(self) -> str:
        shared = f"{self.cores}c" if self.cores != self.threads else ""
        return f"{self.threads}t{shared}" + (f":{self.kind}" if self.kind else "")


@lru_cache(maxsize=256)
def threads_alone(count: int) -> Resources:
    """As many threads, each on a core of its own."""
    return Resources(cores=count, threads=count)


@lru_cache(maxsize=256)
def parse_resources(text: str) -> Resources:
    """The resources that are written so: `2t`, `4t2c`, `4t:efficiency`. Raises ValueError."""
    found = _RESOURCES.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} are no resources; an example is 2t")
    threads = int(found["threads"])
    return Resources(
        cores=int(found["cores"] or threads), threads=threads, kind=found["kind"] or ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The logical CPUs on which something could run, one per physical core first."""

    cpus: tuple[int, ...] = ()
