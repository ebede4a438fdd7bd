"""Dense kernels against numpy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import step
from helpers.kernels.packed_kernel import check_kernel, constants_workload
from tilewright.core.forms import PLAIN, blocked
from tilewright.kernels.matrix_products import DENSE as SPEC


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    leading=st.one_of(
        st.just(()),
        st.tuples(st.integers(1, 30)),
        st.tuples(st.integers(1, 3), st.integers(1, 20)),
        st.tuples(st.integers(2, 9), st.just(1), st.integers(1, 3)),
    ),
    depth=st.integers(1, 40),
    columns=st.sampled_from([1, 3, 8, 10, 12, 20, 33, 64, 100]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_random_extents(leading, depth, columns, choice):
    task = constants_workload(
        [(*leading, depth), (depth, columns), (columns,)],
        [1, 2],
        [step("dense", 0, 1), step("add", 3, 2), step("relu", 4)],
    )
    check_kernel(task, SPEC, (), choice)


def test_gelu_and_residual():
    task = constants_workload(
        [(1, 17, 24), (24, 40), (40,), (1, 17, 40)],
        [1, 2],
        [step("dense", 0, 1), step("add", 4, 2), step("gelu", 5), step("add", 6, 3)],
    )
    check_kernel(task, SPEC)


def test_ways_that_meet_again():
    """GELU with tanh, as exporters write it, times another layer's result."""
    task = constants_workload(
        [(17, 24), (24, 40), (40,), (), (17, 40)],
        [1, 2, 3],
        [
            step("dense", 0, 1),
            step("add", 5, 2),
            step("multiply", 6, 6),
            step("multiply", 7, 6),
            step("multiply", 8, 3),
            step("add", 6, 9),
            step("tanh", 10),
            step("add", 11, 3),
            step("multiply", 6, 12),
            step("multiply", 13, 4),
        ],
    )
    check_kernel(task, SPEC)


def test_data_that_arrives_blocked_through_a_reshape():
    task = constants_workload(
        [(1, 16, 3, 2), (96, 10), (10,)],
        [1, 2],
        [step("reshape", 0, shape=(1, 96)), step("dense", 3, 1), step("add", 4, 2)],
    )
    check_kernel(task, SPEC, (blocked(8), PLAIN, PLAIN, PLAIN))
