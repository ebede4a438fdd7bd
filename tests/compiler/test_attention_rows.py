"""Attention kernels against numpy: tails, masks, key_heads heads, views, and what follows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention_tasks import attention, check_attention
from helpers.kernels.one_kernel import random_arrays, step, workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.attention import SPEC
from tilewright.testing.implementations import ImplementationConformance


def check(task: Workload, arrays=None, choice: int | None = None) -> None:
    check_attention(SPEC.name, task, arrays, choice)


class TestAttention(ImplementationConformance):
    spec = SPEC
    workloads = (attention((2, 9, 24), (2, 21, 12), (2, 21, 20), (4, 1, 21), heads=4, key_heads=2),)


@pytest.mark.parametrize("choice", range(8))
def test_tails_in_every_kind_of_setting(choice):
    causal = choice % 2 == 0
    check(attention((1, 37, 40), (1, 51, 40), (1, 51, 72), heads=2, causal=causal), None, choice)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 40), st.integers(0, 40), st.integers(1, 24), st.integers(1, 40), st.booleans()
)
def test_any_extents(queries, more, depth, width, causal):
    keys = queries + more
    check(
        attention((2, queries, 4 * depth), (2, keys, 2 * depth), (2, keys, 2 * width),
                  heads=4, key_heads=2, causal=causal)
    )  # fmt: skip


ROWS = ((2, 19, 32), (2, 19, 32), (2, 19, 32))


@pytest.mark.parametrize("shape", [(19, 19), (2, 1, 1, 19), (4, 19, 19), (2, 4, 19, 1)])
def test_masks_that_are_added(shape):
    check(attention(*ROWS, shape, heads=4))


@pytest.mark.parametrize("fill", ["-inf", -3.4028234663852886e38, -1e4, 2.0])
def test_masks_that_choose(fill):
    """Where all scores of a query are replaced, what is left is the mean, or nothing at all."""
    task = attention(*ROWS, TensorType((2, 1, 19, 19), "bool"), heads=4, fill=fill)
    arrays = random_arrays(task)
    arrays[3][0, 0, 5] = False
    check(task, arrays)


def test_the_most_negative_number_hides_and_leaves_means_where_it_hides_all():
    task = attention(*ROWS, (19, 19), heads=4)
    arrays = random_arrays(task)
    lowest = np.finfo(np.float32).min
    arrays[3] = np.where(np.tri(19, dtype=bool), np.float32(0), lowest)
    arrays[3][7] = lowest
    check(task, arrays)


def test_large_scores_and_numbers_that_are_none():
    task = attention(*ROWS, heads=4)
    arrays = random_arrays(task)
    arrays[0] *= 1000
    arrays[0][0, 3, 0] = np.nan
    arrays[0][1, 4, 0] = np.inf
    check(task, arrays)


def test_views_before_and_elementwise_steps_behind():
    """Queries, keys and values are parts of one tensor; keys come as columns of heads."""
    whole, columns, gate = (1, 21, 96), (1, 2, 16, 21), (1, 21, 32)
    cut = {"steps": (1, 1, 1)}
    check(
        workload(
            [whole, columns, gate],
            step("slice", 0, starts=(0, 0, 0), stops=(1, 21, 32), **cut),
            step("transpose", 1, permutation=(0, 3, 1, 2)),
            step("reshape", 4, shape=(1, 21, 32)),
            step("slice", 0, starts=(0, 0, 64), stops=(1, 21, 96), **cut),
            step("attention", 3, 5, 6, heads=2, key_heads=2, scale=0.25, causal=False, fill="-inf"),
            step("sigmoid", 2),
            step("multiply", 7, 8),
        )
    )
