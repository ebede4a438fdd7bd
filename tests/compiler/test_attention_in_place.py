"""Attention of few queries against numpy: tails, shared keys, caches, and what follows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention_tasks import attention, check_attention
from helpers.kernels.one_kernel import random_arrays, step, workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.attention_in_place import SPEC
from tilewright.testing.implementations import ImplementationConformance


def check(task: Workload, arrays=None, choice: int | None = None) -> None:
    check_attention(SPEC.name, task, arrays, choice)


class TestAttentionInPlace(ImplementationConformance):
    spec = SPEC
    workloads = (attention((2, 3, 24), (2, 21, 12), (2, 21, 20), (4, 1, 21), heads=4, key_heads=2),)


@pytest.mark.parametrize("choice", range(8))
def test_tails_in_every_kind_of_setting(choice):
    causal = choice % 2 == 0
    task = attention((1, 5, 80), (1, 51, 40), (1, 51, 72), heads=4, key_heads=2, causal=causal)
    check(task, None, choice)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(0, 40), st.integers(1, 40),
    st.integers(1, 40), st.booleans(),
)  # fmt: skip
def test_any_extents(queries, shared, more, depth, width, causal):
    keys = queries + more
    check(
        attention((2, queries, 2 * shared * depth), (2, keys, 2 * depth), (2, keys, 2 * width),
                  heads=2 * shared, key_heads=2, causal=causal)
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 1, 1, 19), (4, 2, 19), (2, 4, 2, 1)])
def test_masks_that_are_added(shape):
    check(attention((2, 2, 32), (2, 19, 32), (2, 19, 32), shape, heads=4))


def test_masks_that_choose_and_numbers_that_are_none():
    mask = TensorType((2, 1, 1, 19), "bool")
    task = attention((2, 1, 32), (2, 19, 16), (2, 19, 16), mask, heads=4, key_heads=2)
    arrays = random_arrays(task)
    arrays[0][0] *= 1000
    arrays[0][1, 0, 9] = np.nan
    check(task, arrays)


def test_caches_by_heads_and_elementwise_steps_behind():
    """Keys and values are caches [batch, heads, keys, elements], as exporters write them."""
    query, cache = (1, 1, 64), (1, 2, 37, 32)
    rows = {"permutation": (0, 2, 1, 3)}
    check(
        workload(
            [query, cache, cache, query],
            step("transpose", 1, **rows),
            step("reshape", 4, shape=(1, 37, 64)),
            step("transpose", 2, **rows),
            step("reshape", 6, shape=(1, 37, 64)),
            step("attention", 0, 5, 7, heads=2, key_heads=2, scale=0.2, causal=False, fill="-inf"),
            step("add", 8, 3),
        )
    )
