"""Attention with products of bfloat16, and attention that reads and writes it, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention_tasks import attention
from helpers.kernels.in_halves import HALF, HERE, best_of, check, halved, needs_halves
from helpers.kernels.one_kernel import PLACEMENT, step, workload
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, stored_in
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload

NAME = "attention_bfloat16"


def forms(task: Workload, data: bool, result: bool) -> tuple[Form, ...]:
    """Queries, keys, values and masks that are numbers, and the result, in halves or not."""
    several = [halved(PLAIN, data and a.type.dtype == "float32") for a in task.arguments]
    return (*several, halved(PLAIN, result))


@needs_halves
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    extents=st.tuples(
        st.integers(1, 40), st.integers(0, 40), st.integers(1, 24), st.integers(1, 40)
    ),
    causal=st.booleans(),
    scale=st.sampled_from([0.25, 0.3]),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_any_extents(extents, causal, scale, halves, choice):
    queries, more, depth, width = extents
    keys = queries + more
    task = attention(
        (2, queries, 4 * depth), (2, keys, 2 * depth), (2, keys, 2 * width),
        heads=4, key_heads=2, causal=causal, scale=scale,
    )  # fmt: skip
    check(task, HERE, NAME, forms(task, *halves), choice)


@needs_halves
@pytest.mark.parametrize("mask", [(19, 19), TensorType((2, 1, 19, 19), "bool")], ids=str)
def test_masks(mask):
    rows = (2, 19, 32)
    task = attention(rows, rows, rows, mask, heads=4, fill=-1e4)
    check(task, HERE, NAME, forms(task, True, True))


@needs_halves
def test_views_of_one_tensor_in_halves():
    cut = {"steps": (1, 1, 1)}
    parts = [
        step("slice", 0, starts=(0, 0, 32 * i), stops=(1, 21, 32 * i + 32), **cut) for i in range(3)
    ]
    named = {"heads": 2, "key_heads": 2, "scale": 0.25, "causal": False, "fill": "-inf"}
    task = workload(
        [(1, 21, 96), (1, 21, 32)],
        *parts, step("attention", 2, 3, 4, **named), step("add", 5, 1),
    )  # fmt: skip
    half = stored_in(PLAIN, HALF)
    check(task, HERE, NAME, (half, half, half))


@needs_halves
def test_products_are_the_instruction() -> None:
    task = attention((1, 64, 64), (1, 64, 64), (1, 64, 64), heads=1, scale=0.125)
    candidate = best_of(NAME, task, HERE, forms(task, True, True))
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert text.count("vdpbf16ps") >= 16


@needs_halves
def test_a_query_that_sees_nothing_and_scores_that_overflow() -> None:
    shape = (1, 9, 16)
    task = attention(shape, shape, shape, TensorType((9, 9), "bool"), heads=1, scale=1.0)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape, np.float32) for _ in range(3))
    seen = np.tri(9, dtype=bool)
    seen[4] = False
    q[0, 6] = 3e38
    candidate = best_of(NAME, task, HERE, (PLAIN,) * 5)
    found = build_kernel(task, candidate, HERE.target, HERE.resources).run([q, k, v, seen])
    assert np.isnan(found[0, 4]).all() and np.isfinite(found[0, [0, 1, 2, 3, 5, 7, 8]]).all()
    np.testing.assert_allclose(found[0, 0], v[0, 0], rtol=2**-8)


@pytest.mark.parametrize("queries", [1, 9])
def test_attention_in_single_precision_takes_halves(queries: int) -> None:
    task = attention((2, queries, 32), (2, 21, 16), (2, 21, 24), heads=4, key_heads=2)
    name = "attention_in_place" if queries == 1 else "attention_rows"
    check(task, replace(PLACEMENT, precision=HALF), name, forms(task, True, True), 0)
