"""Batched products against numpy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import step
from helpers.kernels.packed_kernel import check_kernel, constants_workload
from tilewright.kernels.matrix_products import BATCH_MATMUL as SPEC


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    leading=st.sampled_from(
        [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 1), (1, 3)), ((2, 2), ()), ((), (2,))]
    ),
    rows=st.integers(1, 21),
    depth=st.integers(1, 18),
    columns=st.sampled_from([1, 3, 8, 12, 16, 19, 37]),
    transposed=st.booleans(),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_random_extents(leading, rows, depth, columns, transposed, choice):
    right = (columns, depth) if transposed else (depth, columns)
    task = constants_workload(
        [(*leading[0], rows, depth), (*leading[1], *right)],
        [],
        [step("batch_matmul", 0, 1, transpose_b=transposed)],
    )
    check_kernel(task, SPEC, (), choice)


def test_scale_and_mask_behind():
    task = constants_workload(
        [(1, 2, 9, 8), (1, 2, 9, 8), (1,), (9, 9)],
        [2, 3],
        [
            step("batch_matmul", 0, 1, transpose_b=True),
            step("multiply", 4, 2),
            step("add", 5, 3),
        ],
    )
    check_kernel(task, SPEC)


def test_heads_are_transposed_on_the_way_in():
    task = constants_workload(
        [(1, 9, 24), (1, 9, 24)],
        [],
        [
            step("reshape", 0, shape=(1, 9, 3, 8)),
            step("transpose", 2, permutation=(0, 2, 1, 3)),
            step("reshape", 1, shape=(1, 9, 3, 8)),
            step("transpose", 4, permutation=(0, 2, 1, 3)),
            step("batch_matmul", 3, 5, transpose_b=True),
        ],
    )
    check_kernel(task, SPEC)


def test_one_constant_matrix_for_all():
    task = constants_workload(
        [(4, 6, 5), (5, 16)], [1], [step("batch_matmul", 0, 1, transpose_b=False)]
    )
    check_kernel(task, SPEC)
