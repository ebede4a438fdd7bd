"""Attention on GPUs: its text, executed on the CPU in three orders, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention_tasks import attention
from helpers.kernels.cuda_kernels import ORDERS, check_cuda_kernel, executed
from helpers.kernels.gpu_kernels import a_gpu, gpu_program, space_of
from helpers.kernels.one_kernel import random_arrays, step
from tilewright.compiler.cuda.compilers import compiled_source
from tilewright.core.records import Settings
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler
from tilewright.testing.implementations import some_settings

NAME = "cuda_attention"
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")


def drawn(task: Workload, number: int) -> Settings:
    """One of sixty settings from all over the space."""
    found = some_settings(space_of(NAME, task, a_gpu()), 60)
    return found[number % len(found)]


def halves(*shapes: tuple[int, ...]) -> list[TensorType]:
    return [TensorType(shape, "float16") for shape in shapes]


def with_a_step_behind() -> Workload:
    task = attention((1, 13, 16), (1, 21, 16), (1, 21, 16), heads=2)
    return replace(task, steps=(*task.steps, step("relu", 3)))


TASKS = {
    "grouped heads": attention((2, 9, 24), (2, 11, 12), (2, 11, 8), heads=4, key_heads=2),
    "causal": attention((1, 40, 32), (1, 50, 32), (1, 50, 32), heads=1, causal=True),
    "more queries than keys": attention((1, 19, 8), (1, 12, 8), (1, 12, 8), heads=1),
    "a mask that is added": attention(
        (2, 9, 24), (2, 11, 12), (2, 11, 10), (2, 1, 1, 11), heads=4, key_heads=2, causal=True
    ),
    "a mask of choices": attention(
        (1, 9, 24), (1, 37, 24), (1, 37, 20), TensorType((9, 37), "bool"), heads=4, fill="-1e9"
    ),
    "one query": attention((2, 1, 64), (2, 77, 32), (2, 77, 32), heads=2, key_heads=1),
    "half precision": attention(*halves((1, 9, 16), (1, 11, 16), (1, 11, 16)), heads=2),
    "odd everything": attention((1, 17, 15), (1, 23, 15), (1, 23, 21), heads=3),
    "a step behind it": with_a_step_behind(),
}


@executes
@pytest.mark.parametrize("name", TASKS)
def test_settings_from_all_over_the_space(name: str) -> None:
    task, number = TASKS[name], 7 * list(TASKS).index(name)
    for place in (number, number + 31):
        check_cuda_kernel(gpu_program(NAME, task, drawn(task, place)), task)


@executes
@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 70), st.integers(1, 40), st.booleans(), st.integers(0, 59)
)
def test_odd_attentions(queries: int, keys: int, depth: int, causal: bool, number: int) -> None:
    keys = max(queries, keys)
    shapes = ((1, queries, depth), (1, keys, depth), (1, keys, depth))
    task = attention(*shapes, heads=1, causal=causal)
    check_cuda_kernel(gpu_program(NAME, task, drawn(task, number)), task)


@executes
@pytest.mark.parametrize(("split", "causal"), [(2, False), (4, True)])
def test_several_blocks_share_keys(split: int, causal: bool) -> None:
    tiles = dict(queries=4, thread_queries=1, lanes=8, thread_keys=1, split=split)
    task = attention((2, 11, 16), (2, 45, 8), (2, 45, 12), heads=2, key_heads=1, causal=causal)
    program = gpu_program(NAME, task, tiles)
    assert len(program.launches) == 2 and len(program.workspaces) == 3
    check_cuda_kernel(program, task)


@executes
def test_queries_that_see_nothing_are_no_number() -> None:
    """As in numpy: the first queries of a causal attention with fewer keys see none."""
    task = attention((1, 12, 8), (1, 5, 8), (1, 5, 8), heads=1, causal=True)
    arrays = random_arrays(task)
    with np.errstate(invalid="ignore"):
        expected = run_workload(task, arrays)
    for seed in ORDERS:
        found = executed(gpu_program(NAME, task, drawn(task, 7 * seed)), task, arrays, seed)
        assert np.isnan(expected).any()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@executes
def test_each_barrier_is_missed() -> None:
    task = attention((1, 32, 16), (1, 70, 16), (1, 70, 16), heads=1)
    tiles = dict(queries=32, thread_queries=2, lanes=8, thread_keys=4, split=1)
    program = gpu_program(NAME, task, tiles)
    parts = program.source.split("__syncthreads();")
    assert len(parts) == 5
    for place in range(4):
        joined = [*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]]
        text = "__syncthreads();".join(joined)
        with pytest.raises(KernelFault):
            executed(replace(program, source=text), task, sample_arguments(task, 0), seed=place)


@pytest.mark.skipif(bool(compiled_source("", "sm_90").reason), reason="no compiler of NVIDIA's")
@pytest.mark.parametrize(("arch", "number"), [("sm_75", 11), ("sm_90", 0), ("sm_120", 40)])
def test_nothing_is_spilled(arch: str, number: int) -> None:
    task = attention((1, 197, 768), (1, 197, 768), (1, 197, 768), heads=12)
    on = a_gpu(f"-arch={arch}")
    found = some_settings(space_of(NAME, task, on), 60)
    source = gpu_program(NAME, task, found[number % len(found)], on).source
    for report in compiled_source(source, arch).reports.values():
        assert (report.spill_store_bytes, report.stack_bytes) == (0, 0)
