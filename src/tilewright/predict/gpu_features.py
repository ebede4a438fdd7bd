"""What a CUDA kernel's launch and its compiler's report say before it runs.

`docs/reference/cuda.md` describes each fact with its unit. How many blocks fit on a multiprocessor
follows NVIDIA's occupancy calculation (`cuda_occupancy.h`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from tilewright.cost.floors import Peaks, Work, roofline_s
from tilewright.hardware.gpus import CompilerReport, CudaCode, CudaKernel, Gpu

WARP = 32
_SECTOR_BYTES = 32
_PARTITIONS = 4
_PARTITION_REGISTERS = 16384
_REGISTER_UNIT = 256
_SHARED_UNITS = {"sm_6": 256, "sm_7": 256}
_SHARED_UNIT, _RESERVED_SHARED_BYTES = 128, 1024

Limit = Literal["threads", "blocks", "registers", "shared memory"]
Features = dict[str, float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Blocks of a kernel that a multiprocessor holds at once, 0 where one does not fit; the part of
    its threads they are; what there is too little of for one more."""

    blocks: int
    part: float
    limited_by: Limit


def occupancy(kernel: CudaKernel, gpu: Gpu) -> Occupancy:
    """How a kernel fills a multiprocessor; without a compiler's report registers do not count."""
    warps = ceil(kernel.threads / WARP)
    limits: dict[Limit, int] = {
        "threads": gpu.most_threads // (warps * WARP),
        "blocks": gpu.most_blocks,
    }
    if kernel.report is not None and kernel.report.registers:
        warp_registers = _whole(kernel.report.registers * WARP, _REGISTER_UNIT)
        limits["registers"] = _PARTITIONS * (_PARTITION_REGISTERS // warp_registers) // warps
    taken = shared_bytes(kernel)
    if taken:
        old_unit = _SHARED_UNITS.get(gpu.arch[:4])
        reserved = 0 if old_unit else _RESERVED_SHARED_BYTES
        room = gpu.shared_bytes if taken <= gpu.block_shared_bytes else 0
        limits["shared memory"] = room // (_whole(taken, old_unit or _SHARED_UNIT) + reserved)
    name = min(limits, key=lambda limit: limits[limit])
    return Occupancy(
        blocks=limits[name],
        part=limits[name] * warps * WARP / gpu.most_threads,
        limited_by=name,
    )


def shared_bytes(kernel: CudaKernel) -> int:
    """A block's shared memory: the compiler's figure, which also has alignment, where there is one,
    but never less than what the launch asks for."""
    reported = kernel.report.shared_bytes if kernel.report is not None else 0
    return max(kernel.shared_bytes, reported)


def main_kernel(code: CudaCode) -> CudaKernel:
    """The function that reads the most, which is where the time goes as a rule."""
    return max(code.kernels, key=lambda kernel: kernel.blocks * kernel.threads * kernel.loads)


def with_report(kernel: CudaKernel, report: CompilerReport | None) -> CudaKernel:
    """A kernel that was not compiled, with the registers of one that is like it."""
    if report is None:
        return kernel
    return replace(kernel, report=replace(report, shared_bytes=kernel.shared_bytes))


def waves(kernel: CudaKernel, gpu: Gpu) -> float | None:
    """How often the blocks of a launch fill the GPU; None where multiprocessors are not known or no
    block fits."""
    held = occupancy(kernel, gpu).blocks * (gpu.multiprocessors or 0)
    return kernel.blocks / held if held else None


def kernel_features(kernel: CudaKernel, gpu: Gpu) -> Features:
    """The facts of one function by name; what is not known is left out."""
    warps = ceil(kernel.threads / WARP)
    fits = occupancy(kernel, gpu)
    facts: Features = {
        "grid_blocks": kernel.blocks,
        "block_threads": kernel.threads,
        "warp_fill": kernel.threads / (warps * WARP),
        "shared_bytes": shared_bytes(kernel),
        "loads": kernel.loads,
        "guarded_share": kernel.guarded / kernel.loads if kernel.loads else 0.0,
        "comparisons": kernel.comparisons,
        "sectors_per_load": kernel.sectors,
        "sector_bytes": kernel.loads * kernel.sectors * _SECTOR_BYTES * warps * kernel.blocks,
        "stores": kernel.stores,
        "blocks_per_multiprocessor": fits.blocks,
        "occupancy": fits.part,
        "limited_by": fits.limited_by,
    }
    if kernel.report is not None:
        facts["registers"] = kernel.report.registers
        facts["spill_bytes"] = kernel.report.spill_store_bytes + kernel.report.spill_load_bytes
        facts["stack_bytes"] = kernel.report.stack_bytes
    if gpu.multiprocessors is not None:
        facts["multiprocessors_used"] = min(1.0, kernel.blocks / gpu.multiprocessors)
        facts["most_blocks"] = ceil(kernel.blocks / gpu.multiprocessors)
    count = waves(kernel, gpu)
    if count is not None:
        facts["waves"] = count
        facts["tail"] = 1 - count / ceil(count)
    return facts


def code_features(code: CudaCode, gpu: Gpu) -> Features:
    """The facts of an operator: those of its main function, and what is of the whole."""
    return {
        "rule": code.rule,
        "kernels": len(code.kernels),
        **kernel_features(main_kernel(code), gpu),
    }


def roofline_of_gpu_s(work: Work, gpu: Gpu) -> float | None:
    """The least seconds by the datasheet's fp32 peak and bandwidth; None for an unknown model."""
    if gpu.flop_per_s is None or gpu.bytes_per_s is None:
        return None
    peaks = Peaks(
        flop_per_s=gpu.flop_per_s, bytes_per_s=gpu.bytes_per_s, cache_bytes_per_s=gpu.bytes_per_s
    )
    return float(roofline_s(work, peaks))


def _whole(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
