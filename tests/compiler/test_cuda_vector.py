"""Products of a few vectors with a matrix for GPUs, executed in three orders and compiled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_settings import check_settings, faults_without, listed
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType
from tilewright.testing.cuda_execution import compiler

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
    "long rows": workload([(1, 90), (3, 90)], step("batch_matmul", 0, 1, transpose_b=True)),
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


@pytest.mark.parametrize(
    ("name", "wanted", "barriers"),
    [
        ("one vector", dict(row_threads=8, split=1), 1),
        ("one vector", dict(row_threads=8, split=2), 2),
        ("long rows", dict(row_threads=64, split=1), 1),
    ],
    ids=["columns", "columns in parts", "warps of a row"],
)
def test_each_barrier_is_missed(name: str, wanted: dict[str, int], barriers: int) -> None:
    task = WORKLOADS[name]
    setting = next(one for one in listed(task, NAME) if one.items() >= wanted.items())
    assert faults_without(task, NAME, setting, "__syncthreads();") == barriers
