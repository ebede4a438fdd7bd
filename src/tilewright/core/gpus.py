"""GPUs and the functions that run on them, by what is known before anything runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as its compute capability and its datasheet describe it.

    `arch` is nvcc's name of the compute capability, `sm_90`. The limits are those of one
    multiprocessor. `multiprocessors`, `flop_per_s` (fp32, without Tensor Cores) and `bytes_per_s`
    are None where the model is not known.
    """

    model: str
    arch: str
    target: str
    most_threads: int
    most_blocks: int
    shared_bytes: int
    block_shared_bytes: int
    multiprocessors: int | None = None
    flop_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerReport:
    """What ptxas says of one function: registers of a thread, bytes that a thread stores and loads
    because registers did not suffice, its stack frame, and shared memory of a block."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """A function that a GPU runs: how it is launched, and what its lowered code says.

    `loads` are the loads from global memory that a thread executes, a vector counted once where its
    elements lie side by side; `guarded` those of them behind a condition, as the border of a padded
    input is; `comparisons` those in all conditions that it evaluates; `sectors` the 32-byte sectors
    that one load touches for a warp, on average: 4 is a full one of fp32, 1 the same address for
    all, 32 a sector for each thread. `shared_bytes` are a block's; `parameters` the names of the
    function's own. `report` is None where nothing could compile it.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    loads: float
    guarded: float
    comparisons: float
    stores: float
    sectors: float
    shared_bytes: int
    parameters: tuple[str, ...] = ()
    report: CompilerReport | None = None

    @property
    def blocks(self) -> int:
        """Blocks of a launch."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCode:
    """An operator as CUDA code.

    `rule` is the schedule rule of TVM's that applied, `kernels` are in the order in which they run;
    `binary` is a cubin, empty where `reason` says why there is none.
    """

    rule: str
    kernels: tuple[CudaKernel, ...]
    source: str
    binary: bytes = b""
    reason: str = ""
