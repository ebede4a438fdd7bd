from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, check_packing, check_space
from tilewright.kernels.matrix_products import DENSE as SPEC
from tilewright.kernels.matrix_products import product
from tilewright.kernels.register_tile import row_tile_sizes
from tilewright.testing.implementations import (
    PLACEMENTS,
    candidate_of,
    made_up_placement,
    plain,
    single,
)


@settings(max_examples=40, deadline=None)
@given(
    leading=st.one_of(
        st.just(()), st.tuples(st.integers(1, 200)), st.tuples(st.just(1), st.integers(1, 200))
    ),
    depth=st.integers(1, 60),
    columns=st.sampled_from([1, 10, 100, 257, 768]),
    on=st.sampled_from(PLACEMENTS),
)
def test_space_facts_and_packing(leading, depth, columns, on):
    task = single("dense", (*leading, depth), (depth, columns), constants=(1,))
    found, facts = check_space(SPEC, task, on, plain(task))
    assert facts["accumulators"].max() < on.target.vector_registers
    check_packing(SPEC, task, candidate_of(SPEC, best(found, facts), plain(task)))


@given(rows=st.integers(1, 2000))
def test_row_tiles_waste_little(rows):
    sizes = row_tile_sizes(rows)
    assert sizes
    assert all(-(-rows // size) * size <= 1.12 * rows for size in sizes)


def test_the_longest_leading_axis_is_tiled():
    task = single("dense", (2, 50, 1, 8), (8, 16), constants=(1,))
    dense = product(task)
    assert (dense.row_axis, dense.rows, dense.leading) == (1, 50, (2, 1))


def test_weights_must_be_constant():
    assert not SPEC.applies(
        single("dense", (4, 8), (8, 16)), made_up_placement().target, made_up_placement().resources
    )


def test_default_for_many_rows_streams_the_weights_once():
    task = single("dense", (1, 128, 768), (768, 3072), constants=(1,))
    found, facts = check_space(SPEC, task, made_up_placement(), plain(task))
    chosen = best(found, facts)
    assert chosen["order"] == "columns"
    assert int(chosen["tile_rows"]) * int(chosen["block"]) // 16 >= 16
