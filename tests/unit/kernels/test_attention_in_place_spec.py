from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import step, workload
from helpers.kernels.spec_checks import best, check_space
from tilewright.graph.network import TensorType
from tilewright.kernels import attention, attention_in_place
from tilewright.kernels.attention_in_place import SPEC
from tilewright.testing.implementations import PLACEMENTS, made_up_placement, plain, single

NAMED = {"scale": 0.125, "fill": "-inf", "causal": False}


def task(queries, keys, depth=64, width=64, *, shared=1, dtype="float32"):
    shapes = ((2, queries, 2 * shared * depth), (2, keys, 2 * depth), (2, keys, 2 * width))
    kinds = (TensorType(shape, dtype) for shape in shapes)
    return single("attention", *kinds, heads=2 * shared, key_heads=2, **NAMED)


def applies(asked):
    on = made_up_placement()
    return SPEC.applies(asked, on.target, on.resources)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 200), st.integers(1, 200), st.integers(1, 200),
    st.integers(1, 4), st.sampled_from(PLACEMENTS),
)  # fmt: skip
def test_space_and_facts(queries, keys, depth, width, shared, on):
    asked = task(queries, keys, depth, width, shared=shared)
    _, facts = check_space(SPEC, asked, on, plain(asked))
    assert facts["accumulators"].max() < on.target.vector_registers


def test_it_applies_to_few_rows_in_single_precision():
    assert applies(task(1, 1024)) and applies(task(4, 16, shared=4))
    assert not applies(task(5, 16, shared=4))
    assert not applies(task(1, 16, dtype="float64"))


@pytest.mark.parametrize(
    ("shape", "permutation", "taken"),
    [((1, 2, 16, 64), (0, 2, 1, 3), True), ((1, 2, 64, 16), (0, 3, 1, 2), False)],
)
def test_it_applies_where_the_elements_of_a_key_lie_beside_each_other(shape, permutation, taken):
    asked = workload(
        [(1, 1, 128), shape, (1, 16, 128)],
        step("transpose", 1, permutation=permutation),
        step("reshape", 3, shape=(1, 16, 128)),
        step("attention", 0, 4, 2, heads=2, key_heads=2, **NAMED),
    )
    assert applies(asked) == taken


@pytest.mark.parametrize(
    ("queries", "shared", "in_place"), [(1, 1, True), (1, 2, True), (4, 4, False)]
)
def test_which_estimate_is_lower(queries, shared, in_place):
    """Copies pay as soon as enough rows read them."""
    asked, on = task(queries, 1024, shared=shared), made_up_placement()
    least = [
        check_space(spec, asked, on, plain(asked))[1]["estimate_s"].min()
        for spec in (SPEC, attention.SPEC)
    ]
    assert (least[0] < least[1]) == in_place


def test_one_tile_holds_all_heads_that_share_keys():
    asked = task(1, 1024, shared=4)
    found, facts = check_space(SPEC, asked, made_up_placement(), plain(asked))
    assert best(found, facts)["tile_rows"] == 4
    assert attention_in_place.rows_of_keys(asked) == 4
