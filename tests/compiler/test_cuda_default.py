"""Kernels by TVM's schedules for GPUs keep the limits of a launch, whatever the sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm.s_tir import dlight

from helpers.kernels.cuda_kernels import check_cuda_kernel
from helpers.kernels.gpu_kernels import a_gpu
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.builders.cuda import BUILDER, program_of
from tilewright.compiler.lower import registry
from tilewright.core.errors import ModelError
from tilewright.core.records import Candidate
from tilewright.core.targets import Target
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.hardware.cards import broken_limit
from tilewright.hardware.gpus import CudaProgram
from tilewright.kernels.cuda.default import SPEC
from tilewright.testing.cuda_execution import compiler, cuda_executable
from tilewright.testing.implementations import candidate_of, plain

executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
Shape = tuple[int, ...]


def in_double(shapes: list[Shape], operator: str, **named: object) -> Workload:
    kinds = [TensorType(shape, "float64") for shape in shapes]
    return workload(kinds, step(operator, *range(len(shapes)), **named))


def product(left: Shape, right: Shape, dtype: str = "float64", *, turned: bool = False) -> Workload:
    kinds = [TensorType(shape, dtype) for shape in (left, right)]
    return workload(kinds, step("batch_matmul", 0, 1, transpose_b=turned))


def dense(rows: int, depth: int, columns: int) -> Workload:
    return in_double([(rows, depth), (depth, columns)], "dense")


def candidate(task: Workload) -> Candidate:
    return candidate_of(SPEC, {}, plain(task))


def lowered(task: Workload, target: Target) -> CudaProgram:
    return program_of(task, candidate(task), target, a_gpu().resources)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(65_536, 2**23),
    st.tuples(*[st.integers(1, 40)] * 3),
    st.sampled_from(("float64", "int32", "int64")),
    st.sampled_from(("-arch=sm_75", "-model=H100")),
)
@example(2_796_203, (2, 33, 1), "float64", "-arch=sm_75")  # 48 rows of padding, beyond 32 bits
@example(2_796_203, (40, 16, 17), "float64", "-arch=sm_75")  # 64 rows of the result
def test_many_matrices_are_launched(
    count: int, sizes: tuple[int, int, int], dtype: str, gpu: str
) -> None:
    rows, depth, columns = sizes
    target = a_gpu(gpu).target
    for task in (
        product((count, rows, depth), (count, depth, columns), dtype),
        dense(rows, depth, 16 * count),
        dense(16 * count, depth, columns),
    ):
        for launch in lowered(task, target).launches:
            assert broken_limit(launch, target.limits) is None


@executes
@pytest.mark.parametrize(
    "task",
    [
        product((7, 20, 9), (7, 9, 33)),
        product((2, 3, 5, 8), (3, 17, 8), "int32", turned=True),
        dense(19, 6, 300),
    ],
    ids=["matrices", "whole numbers", "columns"],
)
def test_what_is_launched_along_another_axis_is_right(task: Workload) -> None:
    """As on a GPU that has two blocks along y and z: a launch like that of many matrices, but
    short enough to be executed."""
    target, few = a_gpu().target, (2**31 - 1, 2, 2)
    program = lowered(task, replace(target, launch=replace(target.limits, grid=few)))
    (launch,), (before,) = program.launches, lowered(task, target).launches
    assert max(before.grid[1:]) > 2 and launch.grid[1:] == (1, 1)
    assert launch.grid[0] == np.prod(before.grid) and launch.block == before.block
    check_cuda_kernel(program, task, name=SPEC.name)


@executes
@pytest.mark.parametrize("kept", [False, True])
def test_everything_is_added_up(kept: bool) -> None:
    """To a scalar, too, over which the rule for sums stumbles."""
    task = in_double([(3, 10, 33)], "reduce_sum", axes=(0, 1, 2), keepdims=kept)
    check_cuda_kernel(lowered(task, a_gpu().target), task, name=SPEC.name)


@executes
@pytest.mark.on_request
def test_more_elements_than_32_bits_count(tmp_path: Path) -> None:
    """A few blocks of a sum of 4 GiB, into a file that has nothing but what they wrote."""
    rows, columns, blocks = 2**17, 2**15 + 1, 6
    kinds = [TensorType((rows, columns), "int8"), TensorType((columns,), "int8")]
    program = lowered(workload(kinds, step("add", 0, 1)), a_gpu().target)
    line = np.random.default_rng(0).integers(1, 100, columns, np.int8)
    result = np.memmap(tmp_path / "result", np.int8, "w+", shape=(rows, columns))
    arrays = {"argument0": np.zeros((rows, columns), np.int8), "argument1": line}
    cuda_executable(program.source).run(
        program.launches, arrays | {"result": result}, seed=3, blocks=blocks
    )
    result.flush()
    flat, written = result.reshape(-1), list[int]()
    with (tmp_path / "result").open("rb") as file:
        for first, end in _written(file.fileno(), flat.size):
            written += (first + np.flatnonzero(flat[first:end])).tolist()
    (launch,) = program.launches
    assert len(written) == blocks * launch.block[0] and written[-1] > 2**31
    np.testing.assert_array_equal(flat[written], line[np.array(written) % columns])


def _written(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that are in memory or on a disk."""
    end = 0
    while end < size:
        try:
            first = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(descriptor, first, os.SEEK_HOLE)
        yield first, end


def test_positions_of_products_have_64_bits() -> None:
    task = product((2**11, 2**10, 2**10 + 1), (2**11, 2**10 + 1, 4), "float32")
    assert "(int64_t)blockIdx" in lowered(task, a_gpu().target).source


def test_more_memory_than_any_gpu_has() -> None:
    task, on = dense(2**18, 2**18, 1), a_gpu()
    for make in (BUILDER.build, partial(BUILDER.render, view="cuda")):
        with pytest.raises(ModelError, match=r"take 512 GiB; no GPU has more than 288 GiB of mem"):
            make(task, candidate(task), on.target, on.resources)


@pytest.mark.parametrize(
    "task",
    [
        dense(64, 48, 64),
        in_double([(1, 16, 32, 32)], "relu"),
        in_double([(64, 96)], "softmax", axis=1),
    ],
    ids=["tiles", "elements", "rows"],
)
def test_threads_are_those_of_the_rule(task: Workload) -> None:
    on = a_gpu()
    (blocks,) = SPEC.demand(task, on.target, on.resources, plain(task), [{}]).blocks
    (launch,) = lowered(task, on.target).launches
    assert np.prod(launch.block) == blocks.threads
    assert blocks.threads * blocks.registers <= on.target.limits.registers


def test_a_rule_that_fails_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is known to stumble is: others would hide a fault behind a slow kernel."""
    task, on = dense(64, 48, 64), a_gpu()

    def rule() -> str:
        return registry.lowered(task, candidate(task), on.target, on.resources)[0].rule

    def broken(*_: object) -> None:
        raise AttributeError("TVM has changed")

    assert rule() == "Matmul"
    monkeypatch.setattr(dlight.gpu.Matmul, "apply", broken)
    with pytest.raises(AttributeError, match="TVM has changed"):
        rule()
