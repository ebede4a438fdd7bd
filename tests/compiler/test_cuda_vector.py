"""Products of a few vectors with a matrix for GPUs, executed in three orders and compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import executed
from helpers.kernels.cuda_settings import check_settings, listed, program
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler

NAME = "cuda_vector"
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
HALVES = (TensorType((1, 70), "float16"), TensorType((70, 36), "float16"))
WORKLOADS = {
    "one vector": workload([(1, 70), (70, 36), (36,)], step("dense", 0, 1), step("add", 2, 3)),
    "some vectors": workload(
        [(2, 1, 33), (33, 7)], step("tanh", 0), step("dense", 2, 1), step("gelu", 3)
    ),
    "matrices by rows": workload(
        [(3, 2, 64), (3, 5, 64)], step("batch_matmul", 0, 1, transpose_b=True), step("relu", 2)
    ),
    "matrices by columns": workload(
        [(2, 3, 4, 70), (3, 70, 20)], step("batch_matmul", 0, 1, transpose_b=False)
    ),
    "halves": workload(list(HALVES), step("dense", 0, 1)),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_give_numpys_numbers(name: str) -> None:
    check_settings(WORKLOADS[name], NAME)


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 4), st.integers(1, 200), st.integers(1, 90), st.booleans())
def test_odd_matrices(rows: int, terms: int, columns: int, turned: bool) -> None:
    shapes = [(2, rows, terms), (1, columns, terms) if turned else (2, terms, columns)]
    check_settings(workload(shapes, step("batch_matmul", 0, 1, transpose_b=turned)), NAME, 3)


def test_barriers_are_missed() -> None:
    task = WORKLOADS["one vector"]
    shared = next(one for one in listed(task, NAME) if one["row_threads"] == 8)
    built, arrays = program(task, NAME, shared), sample_arguments(task, 0)
    broken = replace(built, source=built.source.replace("__syncthreads();", ""))
    with pytest.raises(KernelFault):
        executed(broken, task, arrays, seed=0)
