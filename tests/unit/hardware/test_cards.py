"""Targets of cards that are here, and limits of launches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.hardware.cards import broken_limit, card_target, on_multiprocessors
from tilewright.hardware.gpus import CompilerReport, CudaLaunch, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.testing.simulated_driver import H100

LIMITS = gpu_target(parse_gpu("cuda -model=H100")).limits
FINE = CudaLaunch(kernel="f", grid=(1, 1, 1), block=(256, 1, 1), arguments=())


def report(registers: int, shared_bytes: int = 0) -> CompilerReport:
    return CompilerReport(
        registers=registers,
        spill_store_bytes=0,
        spill_load_bytes=0,
        stack_bytes=0,
        shared_bytes=shared_bytes,
    )


def test_a_card_with_a_datasheet_has_its_target_and_its_own_size() -> None:
    described = gpu_target(parse_gpu("cuda -model=H100"))
    target = card_target(replace(H100, multiprocessors=114))
    assert (target.model, target.architecture, target.cores) == ("H100", "sm_90", 114)
    assert (target.tvm, target.launch) == (described.tvm, described.launch)
    assert target.clock_hz == described.clock_hz
    shared, l2, memory = target.memory
    assert (l2.bytes, memory.bytes, shared) == (
        50 << 20,
        80 << 30,
        described.memory[0],
    )
    assert l2.bytes_per_s == pytest.approx(described.memory[1].bytes_per_s * 114 / 132)
    assert {l2.cores, memory.cores} == {114}


def test_some_multiprocessors_have_their_part_of_a_card() -> None:
    """All of its memory, and of its second-level cache what they can reach."""
    whole = card_target(H100)
    half = on_multiprocessors(whole, 66)
    assert (half.cores, half.memory[0]) == (66, whole.memory[0])
    assert {level.cores for level in half.memory[1:]} == {66}
    assert [level.bytes for level in half.memory] == [level.bytes for level in whole.memory]
    l2, memory = half.memory[1:]
    assert l2.bytes_per_s == pytest.approx(whole.memory[1].bytes_per_s / 2)
    assert memory.bytes_per_s == whole.memory[2].bytes_per_s
    assert (half.launch, half.tvm) == (whole.launch, whole.tvm)


def test_a_card_without_a_datasheet_has_the_limits_of_its_architecture() -> None:
    card = replace(
        H100, name="NVIDIA RTX 4070", capability=(8, 9), multiprocessors=46, clock_hz=2.5e9
    )
    target = card_target(card)
    assert (target.model, target.architecture, target.cores) == ("NVIDIA RTX 4070", "sm_89", 46)
    assert target.limits == gpu_target(parse_gpu("cuda -arch=sm_89")).limits
    assert target.clock_hz == 2.5e9
    assert target.memory[0].bytes_per_s == pytest.approx(128 * 2.5e9)
    assert target.memory[2].bytes_per_s == H100.bytes_per_s


def test_a_card_of_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(Exception, match="sm_130"):
        card_target(replace(H100, name="NVIDIA H900", capability=(13, 0)))


@pytest.mark.parametrize(
    ("launch", "compiled", "what"),
    [
        (replace(FINE, grid=(1, 65_536, 1)), None, "65,536 blocks along y"),
        (replace(FINE, grid=(1, 1, 65_536)), None, "65,536 blocks along z"),
        (replace(FINE, grid=(0, 1, 1)), None, "0 blocks along x"),
        (replace(FINE, block=(1, 1, 128)), None, "128 threads of a block along z"),
        (replace(FINE, block=(64, 32, 1)), None, "2,048 threads of a block"),
        (FINE, report(32, 50_000), "50,000 bytes of static shared memory"),
        (replace(FINE, dynamic_shared_bytes=232_449), None, "232,449 bytes of shared memory"),
        (replace(FINE, dynamic_shared_bytes=200_000), report(32, 40_000), "240,000 bytes"),
        (replace(FINE, block=(1024, 1, 1)), report(65), "73,728 registers of a block"),
    ],
)
def test_limits_are_known_before_a_launch(
    launch: CudaLaunch, compiled: CompilerReport | None, what: str
) -> None:
    said = broken_limit(launch, LIMITS, compiled)
    assert said is not None
    assert said.startswith(f"f has {what}")


@pytest.mark.parametrize(
    ("launch", "compiled"),
    [
        (replace(FINE, grid=(2**31 - 1, 65_535, 65_535)), report(255)),
        (replace(FINE, block=(1024, 1, 1)), report(64)),
        (replace(FINE, dynamic_shared_bytes=227 << 10), report(32)),
    ],
)
def test_what_a_driver_takes_is_not_refused(launch: CudaLaunch, compiled: CompilerReport) -> None:
    assert broken_limit(launch, LIMITS, compiled) is None
