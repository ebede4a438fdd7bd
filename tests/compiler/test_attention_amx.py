"""Attention in tile registers, by a software tile unit and on processors that have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention_tasks import attention
from helpers.kernels.in_halves import HALF, HERE, best_of, check, halved
from helpers.kernels.software_tiles import TILES, in_software
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.hardware.device import parse_target
from tilewright.kernels.halves import rounding_error
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import default_candidate

NAME = "attention_amx"
INTEL = replace(parse_target("llvm -mcpu=sapphirerapids", 2), precision=HALF)
SOFTWARE = in_software()
PLACES = [SOFTWARE, *([HERE] if {*TILES} <= {*HERE.target.features} else [])]
NARROW = in_software("haswell")
"""Vectors of eight lanes, and no instructions for powers."""


def forms(task: Workload, data: bool, result: bool) -> tuple[Form, ...]:
    several = [halved(PLAIN, data and a.type.dtype == "float32") for a in task.arguments]
    return (*several, halved(PLAIN, result))


@settings(max_examples=8, deadline=None)
@given(
    extents=st.tuples(
        st.integers(2, 70), st.integers(0, 40), st.integers(1, 40), st.integers(1, 40)
    ),
    causal=st.booleans(),
    scale=st.sampled_from([0.25, 0.3]),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
    place=st.sampled_from([*PLACES, NARROW]),
)
def test_any_extents(extents, causal, scale, halves, choice, place):
    queries, more, depth, width = extents
    keys = queries + more
    task = attention(
        (2, queries, 4 * depth), (2, keys, 2 * depth), (2, keys, 2 * width),
        heads=4, key_heads=2, causal=causal, scale=scale,
    )  # fmt: skip
    check(task, place, NAME, forms(task, *halves), choice)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mask", [(49, 49), TensorType((2, 1, 49, 49), "bool")], ids=str)
def test_masks(place, mask):
    rows = (2, 49, 64)
    task = attention(rows, rows, rows, mask, heads=2, fill=-1e4)
    check(task, place, NAME, forms(task, True, True))


@pytest.mark.parametrize("place", PLACES)
def test_queries_that_see_nothing_and_scores_that_overflow(place):
    """One by its mask; those of a whole tile by their order."""
    shape = (1, 9, 16)
    task = attention(shape, shape, shape, TensorType((9, 9), "bool"), heads=1, scale=1.0)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape, np.float32) for _ in range(3))
    seen = np.tri(9, dtype=bool)
    seen[4] = False
    q[0, 6] = 3e38
    found = build_kernel(
        task, best_of(NAME, task, place, (PLAIN,) * 5), place.target, place.resources
    ).run([q, k, v, seen])
    assert np.isnan(found[0, 4]).all() and np.isfinite(found[0, [0, 1, 2, 3, 5, 7, 8]]).all()
    np.testing.assert_allclose(found[0, 0], v[0, 0], rtol=2**-8)

    task = attention((1, 50, 16), shape, shape, heads=1, causal=True)
    candidate = best_of(NAME, task, place, (PLAIN,) * 4)
    q = rng.standard_normal((1, 50, 16), np.float32)
    found = build_kernel(task, candidate, place.target, place.resources).run([q, k, v])
    assert np.isnan(found[0, :41]).all() and np.isfinite(found[0, 41:]).all()


def test_scores_far_below_the_largest_weigh_nothing():
    """Powers by instructions of their own end in zeros, and the largest weight is exact."""
    keys = np.zeros((1, 40, 32), np.float32)
    keys[0, :, 0] = np.concatenate([[0.0], -np.geomspace(100, 3e38, 39)])
    query, value = (np.ones((1, rows, 32), np.float32) for rows in (3, 40))
    value[0, 1:] = 1e30
    task = attention(query.shape, keys.shape, value.shape, heads=1, scale=1.0)
    candidate = best_of(NAME, task, SOFTWARE, (PLAIN,) * 4)
    kernel = build_kernel(task, candidate, SOFTWARE.target, SOFTWARE.resources)
    np.testing.assert_array_equal(kernel.run([query, keys, value]), np.ones((1, 3, 32)))


def test_products_and_powers_are_instructions():
    task = attention((1, 197, 128), (1, 197, 128), (1, 197, 128), heads=2, scale=0.125)
    candidate, _ = default_candidate(task, forms(task, True, True), INTEL)
    assert candidate.implementation == NAME
    text = rendered(task, candidate, INTEL.target, INTEL.resources, "asm")
    assert text.count("\ttdpbf16ps") == text.count("\ttilestored") > 0
    assert text.count("\tldtilecfg") == text.count("\ttilerelease") == 1
    assert "\tvreduceps" in text and "\tvscalefps" in text and "vdpbf16ps" not in text


@pytest.mark.parametrize(("queries", "name"), [(1, "attention_in_place"), (64, NAME)])
def test_few_queries_are_streamed(queries, name):
    task = attention((1, queries, 768), (1, 512, 768), (1, 512, 768), heads=12, scale=0.125)
    assert default_candidate(task, forms(task, True, True), INTEL)[0].implementation == name
    single = replace(INTEL, precision="float32")
    assert default_candidate(task, (PLAIN,) * 4, single)[0].implementation != NAME


def test_the_bound_is_that_of_rounded_factors():
    task = attention((1, 64, 64), (1, 64, 64), (1, 64, 64), heads=1)
    assert implementation(NAME).error_bound(task) == rounding_error(64)
