"""Facts of CUDA kernels before any of them runs, from their launch and their compiler's report.

`docs/reference/cuda.md` describes each fact with its unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tilewright.cost import blocks
from tilewright.cost.demand import Blocks
from tilewright.cost.floors import Peaks, Work, roofline_s
from tilewright.hardware.gpus import CompilerReport, CudaCode, CudaKernel, Gpu, gpu_target

_WARP = 32
_SECTOR_BYTES = 32

Facts = dict[str, float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Blocks of a kernel that a multiprocessor holds at once, 0 where one does not fit; the part of
    its threads they are; what there is too little of for one more: threads, blocks, registers or
    shared memory."""

    blocks: int
    part: float
    limited_by: str


def occupancy(kernel: CudaKernel, gpu: Gpu) -> Occupancy:
    """How a kernel fills a multiprocessor; without a compiler's report registers do not count."""
    limits = gpu_target(gpu).limits
    by_limit = blocks.resident(
        Blocks(
            count=kernel.blocks,
            threads=kernel.threads,
            registers=kernel.report.registers if kernel.report is not None else 0,
            shared_bytes=shared_bytes(kernel),
        ),
        limits,
    )
    name = min(by_limit, key=lambda limit: float(by_limit[limit]))
    held, warps = int(by_limit[name]), ceil(kernel.threads / limits.warp)
    return Occupancy(blocks=held, part=held * warps * limits.warp / limits.threads, limited_by=name)


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


def kernel_facts(kernel: CudaKernel, gpu: Gpu) -> Facts:
    """The facts of one function by name; what is not known is left out."""
    warps = ceil(kernel.threads / _WARP)
    fits = occupancy(kernel, gpu)
    facts: Facts = {
        "grid_blocks": kernel.blocks,
        "block_threads": kernel.threads,
        "warps": warps,
        "warp_fill": kernel.threads / (warps * _WARP),
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


def code_facts(code: CudaCode, gpu: Gpu) -> Facts:
    """The facts of an operator: those of its main function, and what is of the whole."""
    return {
        "rule": code.rule,
        "kernels": len(code.kernels),
        **kernel_facts(main_kernel(code), gpu),
    }


def roofline_of_gpu_s(work: Work, gpu: Gpu) -> float | None:
    """The least seconds by the datasheet's fp32 peak and bandwidth; None for an unknown model."""
    if gpu.flop_per_s is None or gpu.bytes_per_s is None:
        return None
    peaks = Peaks(
        flop_per_s=gpu.flop_per_s, bytes_per_s=gpu.bytes_per_s, cache_bytes_per_s=gpu.bytes_per_s
    )
    return float(roofline_s(work, peaks))
