from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, check_space
from tilewright.graph.network import TensorType
from tilewright.kernels.attention import SPEC
from tilewright.testing.implementations import PLACEMENTS, made_up_placement, plain, single

NAMED = {"scale": 0.125, "fill": "-inf"}


def task(queries, keys, depth, width, causal=False, dtype="float32"):
    shapes = ((2, queries, 4 * depth), (2, keys, 2 * depth), (2, keys, 2 * width))
    kinds = (TensorType(shape, dtype) for shape in shapes)
    return single("attention", *kinds, heads=4, key_heads=2, causal=causal, **NAMED)


@settings(max_examples=40, deadline=None)
@given(*(st.integers(1, 200) for _ in range(4)), st.booleans(), st.sampled_from(PLACEMENTS))
def test_space_and_facts(queries, keys, depth, width, causal, on):
    asked = task(queries, keys, depth, width, causal)
    _, facts = check_space(SPEC, asked, on, plain(asked))
    assert facts["accumulators"].max() < on.target.vector_registers


def test_it_applies_to_single_precision():
    on = made_up_placement()
    asked = [task(16, 16, 8, 8, dtype=dtype) for dtype in ("float32", "float64", "float16")]
    applies = [SPEC.applies(each, on.target, on.resources) for each in asked]
    assert applies == [True, False, False]


@pytest.mark.parametrize("length", [128, 197, 512])
def test_default_tiles_are_of_several_rows_and_vectors(length):
    asked = task(length, length, 64, 64)
    found, facts = check_space(SPEC, asked, made_up_placement(), plain(asked))
    chosen = best(found, facts)
    assert int(chosen["tile_rows"]) * int(chosen["key_vectors"]) >= 12
    assert chosen["row_groups"] == 1


def test_queries_that_see_few_keys_take_less():
    on = made_up_placement()
    estimates = []
    for causal in (False, True):
        asked = task(512, 512, 64, 64, causal)
        found, facts = check_space(SPEC, asked, on, plain(asked))
        estimates.append(facts["estimate_s"].min())
        assert len(found) > 10
    assert 0.5 < estimates[1] / estimates[0] < 0.75
