"""GPUs that are in this machine, as their driver describes them, and what one launch may ask for.

card.model                   "H100" of a "NVIDIA H100 80GB HBM3"
card_target(card)            the target of kernels for it: its datasheet's, with what it has
on_multiprocessors(target, 64) the same for kernels that get 64 of its multiprocessors
broken_limit(launch, limits) None, or which limit a launch breaks
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilewright.core.codec import digest
from tilewright.core.targets import LaunchLimits, Target
from tilewright.hardware.datasheets import model_name
from tilewright.hardware.gpus import CompilerReport, CudaLaunch, gpu_of, gpu_target, nvml_library
from tilewright.hardware.settable import nvml_device

OLDEST = (7, 5)
"""The oldest compute capability that NVIDIA's compilers of CUDA 13 still compile for."""

MOST_MEMORY_BYTES = 288 << 30
"""No GPU of NVIDIA's has more. NVIDIA states 288 GB for a B300, but 141 GB for an H200, which has
140 GiB: so they are taken for GiB, and nothing that fits is refused."""

_BLOCK = (1024, 1024, 64)
"""The most threads of a block along x, y and z, the same for all that are known."""


_REGISTER_UNIT = 8
"""Registers of a thread are given out in units of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU in this machine.

    `identity` is its UUID, `capability` its compute capability; clocks are the highest ones,
    `bytes_per_s` what its memory gives at its own, 0 where the driver does not tell.
    """

    name: str
    identity: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    clock_hz: float
    bytes_per_s: float

    @property
    def instance(self) -> str:
        """A stable name of the card that does not give it away."""
        return digest(self.identity, length=12)

    @property
    def arch(self) -> str:
        """nvcc's name of the compute capability: `sm_90`."""
        return "sm_{}{}".format(*self.capability)

    @property
    def model(self) -> str:
        """The model as people name it in a target; the whole name where it has no datasheet."""
        return model_name(self.name) or self.name


def card_target(card: Card) -> Target:
    """The target of kernels for a card: by its datasheet where there is one, with the
    multiprocessors and the memory that it has. Raises TargetError for an architecture whose limits
    are not known."""
    known = model_name(card.name) is not None
    described = gpu_target(gpu_of({"model": card.model} if known else {"arch": card.arch}))
    shared, l2, memory = described.memory
    clock_hz = described.clock_hz if known else card.clock_hz
    scale = card.multiprocessors * clock_hz / (described.cores * described.clock_hz)
    return replace(
        described,
        model=card.model,
        cores=card.multiprocessors,
        clock_hz=clock_hz,
        memory=(
            replace(shared, bytes_per_s=shared.bytes_per_s * clock_hz / described.clock_hz),
            replace(
                l2,
                bytes=card.l2_bytes,
                cores=card.multiprocessors,
                bytes_per_s=l2.bytes_per_s * scale,
            ),
            replace(
                memory,
                bytes=card.memory_bytes,
                cores=card.multiprocessors,
                bytes_per_s=card.bytes_per_s or memory.bytes_per_s,
            ),
        ),
    )


def on_multiprocessors(target: Target, count: int) -> Target:
    """A GPU's target for kernels that get so many of its multiprocessors: these reach the
    second-level cache less fast, and the memory as fast as all of them."""
    shared, l2, memory = target.memory
    reached = l2.bytes_per_s * count / target.cores
    levels = shared, replace(l2, cores=count, bytes_per_s=reached), replace(memory, cores=count)
    return replace(target, cores=count, memory=levels)


def broken_limit(
    launch: CudaLaunch,
    limits: LaunchLimits,
    report: CompilerReport | None = None,
    static_shared_bytes: int = 0,
) -> str | None:
    """Which limit a launch breaks, in words; None where a driver takes it.

    `report` is the compiler's of its kernel: registers of a thread, and static shared memory, which
    is given as `static_shared_bytes` where there is no report.
    """
    static = report.shared_bytes if report else static_shared_bytes
    threads, registers = prod(launch.block), report.registers if report else 0
    allocated = _whole(registers, _REGISTER_UNIT) * _whole(threads, limits.warp)
    named = [
        *(
            (f"{what} along {axis}", number, 1, most)
            for what, given, limit in (
                ("blocks", launch.grid, limits.grid),
                ("threads of a block", launch.block, _BLOCK),
            )
            for axis, number, most in zip("xyz", given, limit, strict=True)
        ),
        ("threads of a block", threads, 1, limits.block_threads),
        ("bytes of static shared memory", static, 0, limits.static_shared_bytes),
        (
            "bytes of shared memory",
            static + launch.dynamic_shared_bytes,
            0,
            limits.block_shared_bytes,
        ),
        ("registers of a block", allocated, 0, limits.registers),
    ]
    return next(
        (
            f"{launch.kernel} has {number:,} {what}; {least} to {most:,} can be had"
            for what, number, least, most in named
            if not least <= number <= most
        ),
        None,
    )


def busy_share(identity: str, library: Any = None) -> float | None:
    """The part of the last moments in which a card ran something, by NVML; None where NVML does not
    tell. `library` is nvidia-ml-py's module, imported when it is not given."""
    library = library or nvml_library()
    if library is None:
        return None
    try:
        handle = nvml_device(library, identity)
        return library.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except library.NVMLError:
        return None


def _whole(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
