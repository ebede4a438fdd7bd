"""How many blocks a multiprocessor holds, waves, and the rough time that follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.errors import InternalError
from tilewright.core.targets import Target
from tilewright.cost.blocks import facts, held, resident, seconds
from tilewright.cost.demand import Blocks
from tilewright.hardware.gpus import gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.testing.implementations import made_up_placement

H100 = gpu_target(parse_gpu("cuda -model=H100"))
MODELS = ("P100", "V100", "T4", "A100", "3090", "4090", "H100", "5090")
launches = st.builds(
    lambda count, threads, registers, shared, operations, steps: Blocks(
        count=count,
        threads=threads,
        registers=registers,
        shared_bytes=shared,
        operations=operations,
        traffic_bytes=operations / 8,
        steps=steps,
    ),
    st.integers(1, 10**6),
    st.integers(1, 1024),
    st.integers(16, 255),
    st.integers(0, 48 << 10),
    st.integers(1, 10**8),
    st.integers(1, 1000),
)


def blocks(count: int = 1000, **known: float) -> Blocks:
    told = {"threads": 256, "registers": 64, "shared_bytes": 0, "operations": 1e6, **known}
    return Blocks(count=count, **told)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "count", "limit"),
    [
        (256, 32, 0, 8, "threads"),
        (32, 32, 0, 32, "blocks"),
        (256, 65, 0, 3, "registers"),
        (256, 128, 0, 2, "registers"),
        (256, 32, 48 << 10, 4, "shared memory"),
        (128, 32, 228 << 10, 0, "shared memory"),
    ],
)
def test_what_a_multiprocessor_holds(
    threads: int, registers: int, shared: int, count: int, limit: str
) -> None:
    """By NVIDIA's occupancy calculator, of compute capability 9.0."""
    launch = blocks(threads=threads, registers=registers, shared_bytes=shared)
    assert held(launch, H100.limits) == count
    by_limit = resident(launch, H100.limits)
    assert min(by_limit, key=lambda name: float(by_limit[name])) == limit


@given(launches, st.sampled_from(MODELS))
def test_a_multiprocessor_is_never_overfull(launch: Blocks, model: str) -> None:
    limits = gpu_target(parse_gpu(f"cuda -model={model}")).limits
    count = float(held(launch, limits))
    assert 0 <= count <= limits.blocks
    assert count * launch.threads <= limits.threads
    assert count * launch.threads * launch.registers <= limits.registers
    assert count * launch.shared_bytes <= limits.shared_bytes


@given(launches, st.sampled_from(MODELS))
def test_no_time_is_below_what_the_card_can_do(launch: Blocks, model: str) -> None:
    target = gpu_target(parse_gpu(f"cuda -model={model}"))
    if held(launch, target.limits) == 0:
        assert np.isinf(seconds(launch, target))
        return
    flop_per_s = target.operations_per_cycle("float32") * target.cores * target.clock_hz
    least_s = launch.count * launch.operations / flop_per_s
    assert seconds(launch, target) >= least_s * (1 - 1e-9)


@given(launches, st.integers(2, 5))
def test_more_blocks_never_take_less_time(launch: Blocks, times: int) -> None:
    counts = np.array([launch.count, launch.count + 1, launch.count * times], np.float64)
    many = Blocks(
        count=counts,
        threads=launch.threads,
        registers=launch.registers,
        shared_bytes=launch.shared_bytes,
        operations=launch.operations,
        steps=launch.steps,
    )
    taken_s = seconds(many, H100)
    if np.isfinite(taken_s).all():
        assert (np.diff(taken_s) >= -1e-12).all()


def test_a_wave_more_is_a_step() -> None:
    """Blocks that fill the card once, and one more than that."""
    full = int(held(blocks(), H100.limits)) * H100.cores
    one, more = (float(seconds(blocks(count), H100)) for count in (full, full + 1))
    assert more > 1.2 * one
    told = facts(blocks(np.array([full, full + 1])), H100)
    assert told["waves"][0] == 1 and told["tail"][0] == 0
    assert 0.49 < told["tail"][1] < 0.5


def test_memory_is_a_bound() -> None:
    launch = Blocks(count=1000, threads=256, registers=32, memory_bytes=3.35e9)
    assert float(seconds(launch, H100)) == pytest.approx(1e-3, rel=0.01)


def test_few_blocks_wait_for_each_step() -> None:
    """One block for each multiprocessor: twice the loads one after the other, nearly twice the
    time."""
    short, long = (
        float(seconds(blocks(132, operations=1e4, steps=steps), H100)) for steps in (200, 400)
    )
    assert long > 1.8 * short


def test_a_processor_without_launches_is_told() -> None:
    with pytest.raises(InternalError, match="launches no blocks"):
        seconds(blocks(), made_up_placement().target)


@pytest.mark.parametrize("model", MODELS)
def test_a_card_reaches_its_datasheet(model: str) -> None:
    """Arithmetic per cycle, clock and multiprocessors give the peak; so does the bandwidth."""
    gpu = parse_gpu(f"cuda -model={model}")
    target: Target = gpu_target(gpu)
    peak = target.operations_per_cycle("float32") * target.clock_hz * target.cores
    assert peak == pytest.approx(gpu.flop_per_s)
    assert target.memory[-1].bytes_per_s == gpu.bytes_per_s
    assert 1e9 < target.clock_hz < 3e9
    assert target.limits.shared_bytes == target.cache_bytes(1)
