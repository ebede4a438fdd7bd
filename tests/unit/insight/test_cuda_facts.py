"""Features of CUDA kernels that are only arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cost.floors import Work
from tilewright.hardware.gpus import CompilerReport, CudaCode, CudaKernel, Gpu
from tilewright.hardware.target import parse_gpu
from tilewright.insight.cuda_facts import (
    code_facts,
    kernel_facts,
    main_kernel,
    occupancy,
    roofline_of_gpu_s,
    waves,
    with_report,
)

H100 = parse_gpu("cuda -model=H100")


def report(registers: int = 32, shared: int = 0, spills: int = 0) -> CompilerReport:
    return CompilerReport(
        registers=registers,
        spill_store_bytes=spills,
        spill_load_bytes=spills,
        stack_bytes=spills,
        shared_bytes=shared,
    )


def kernel(threads: int = 256, blocks: int = 1000, shared: int = 0, **named) -> CudaKernel:
    fields = dict(
        loads=10.0, guarded=4.0, comparisons=8.0, stores=1.0, sectors=4.0, report=report()
    )
    return CudaKernel(
        name="main_kernel",
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        shared_bytes=shared,
        **{**fields, **named},
    )


# what NVIDIA's occupancy calculation gives
@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared", "blocks", "limit"),
    [
        ("sm_90", 256, 32, 0, 8, "threads"),
        ("sm_90", 1024, 40, 0, 1, "registers"),
        ("sm_90", 32, 32, 0, 32, "blocks"),
        ("sm_80", 128, 32, 48 << 10, 3, "shared memory"),
        ("sm_86", 256, 64, 0, 4, "registers"),
        ("sm_75", 1024, 64, 0, 1, "threads"),
        ("sm_70", 256, 255, 0, 1, "registers"),
        ("sm_70", 64, 32, 48 << 10, 2, "shared memory"),
        ("sm_61", 64, 32, 49 << 10, 0, "shared memory"),
    ],
)
def test_blocks_of_a_multiprocessor(
    target: str, threads: int, registers: int, shared: int, blocks: int, limit: str
) -> None:
    gpu = parse_gpu(f"cuda -arch={target}")
    found = occupancy(kernel(threads=threads, report=report(registers, shared)), gpu)
    assert (found.blocks, found.limited_by) == (blocks, limit)


@given(
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    shared=st.integers(0, 48 << 10),
    target=st.sampled_from(["sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]),
)
def test_a_multiprocessor_is_never_overfull(
    threads: int, registers: int, shared: int, target: str
) -> None:
    gpu: Gpu = parse_gpu(f"cuda -arch={target}")
    it = kernel(threads=threads, report=report(registers, shared))
    found = occupancy(it, gpu)
    warps = -(-threads // 32)
    assert 0 <= found.blocks <= gpu.most_blocks
    assert found.blocks * warps * 32 <= gpu.most_threads
    assert found.blocks * warps * 32 * registers <= 65536
    assert found.blocks * shared <= gpu.shared_bytes
    more = occupancy(replace(it, report=report(min(255, registers + 8), shared)), gpu)
    assert more.blocks <= found.blocks


def test_waves_and_the_tail_of_the_last_one() -> None:
    full = 132 * 8
    exact = kernel_facts(kernel(blocks=2 * full), H100)
    assert (exact["waves"], exact["tail"]) == (2.0, 0.0)
    over = kernel_facts(kernel(blocks=2 * full + 1), H100)
    assert over["tail"] == pytest.approx(1 - (2 * full + 1) / (3 * full))


def test_how_much_of_the_gpu_is_used() -> None:
    """Of 132 multiprocessors, and of the 2048 threads of each."""
    few = kernel_facts(kernel(blocks=33), H100)
    assert (few["multiprocessors_used"], few["most_blocks"]) == (0.25, 1)
    many = kernel_facts(kernel(blocks=300), H100)
    assert (many["multiprocessors_used"], many["most_blocks"]) == (1.0, 3)
    assert many["occupancy"] == 1.0
    assert kernel_facts(kernel(report=report(255)), H100)["occupancy"] == 256 / 2048
    assert kernel_facts(kernel(threads=40, report=report(shared=100 << 10)), H100)[
        "occupancy"
    ] == pytest.approx(2 * 64 / 2048), "two blocks of two warps, the second hardly filled"


def test_without_a_model_there_are_no_waves() -> None:
    gpu = parse_gpu("cuda -arch=sm_90")
    assert waves(kernel(), gpu) is None
    assert not {"waves", "tail"} & set(kernel_facts(kernel(), gpu))
    assert roofline_of_gpu_s(Work(flop=100, memory_bytes=100), gpu) is None


def test_a_block_that_does_not_fit_has_no_waves() -> None:
    big = kernel(threads=1024, report=report(registers=255))
    assert occupancy(big, H100).blocks == 0
    assert waves(big, H100) is None


def test_without_a_report_its_facts_are_left_out() -> None:
    facts = kernel_facts(kernel(report=None), H100)
    assert not {"registers", "spill_bytes", "stack_bytes"} & set(facts)
    assert facts["blocks_per_multiprocessor"] == 8


def test_facts_of_loads() -> None:
    facts = kernel_facts(kernel(threads=48, blocks=3, report=report(spills=8)), H100)
    assert facts["guarded_share"] == pytest.approx(0.4)
    assert (facts["warps"], facts["warp_fill"]) == (2, pytest.approx(48 / 64))
    assert facts["sector_bytes"] == 10 * 4 * 32 * 2 * 3
    assert facts["spill_bytes"] == 16
    assert kernel_facts(kernel(loads=0.0, guarded=0.0), H100)["guarded_share"] == 0


def test_the_main_function_reads_the_most() -> None:
    small, large = kernel(blocks=1), kernel(blocks=100)
    code = CudaCode(rule="Fallback", kernels=(small, large), source="")
    assert main_kernel(code) is large
    busy = kernel(blocks=2, loads=1000.0)
    assert main_kernel(CudaCode(rule="", kernels=(large, busy), source="")) is busy
    facts = code_facts(code, H100)
    assert (facts["rule"], facts["kernels"], facts["grid_blocks"]) == ("Fallback", 2, 100)


def test_a_kernel_that_was_not_compiled_takes_anothers_registers() -> None:
    bare = kernel(shared=1024, report=None)
    assert with_report(bare, None) is bare
    made = with_report(bare, report(registers=99, shared=5))
    assert made.report is not None
    assert (made.report.registers, made.report.shared_bytes) == (99, 1024)


def test_roofline_is_the_slower_of_both() -> None:
    assert roofline_of_gpu_s(Work(flop=66.9e12, memory_bytes=1), H100) == pytest.approx(1.0)
    assert roofline_of_gpu_s(Work(flop=1, memory_bytes=3.35e12), H100) == pytest.approx(1.0)
