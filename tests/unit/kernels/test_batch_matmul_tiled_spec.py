from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, check_space
from tilewright.kernels.matrix_products import BATCH_MATMUL as SPEC
from tilewright.kernels.matrix_products import batch_product
from tilewright.testing.implementations import PLACEMENTS, made_up_placement, plain, single


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 200),
    depth=st.integers(1, 64),
    columns=st.integers(1, 200),
    transposed=st.booleans(),
    on=st.sampled_from(PLACEMENTS),
)
def test_space_and_facts(rows, depth, columns, transposed, on):
    right = (columns, depth) if transposed else (depth, columns)
    task = single("batch_matmul", (12, rows, depth), (12, *right), transpose_b=transposed)
    found, facts = check_space(SPEC, task, on, plain(task))
    assert facts["accumulators"].max() < on.target.vector_registers
    for setting in found:
        whole = not transposed and columns % int(setting["block"]) == 0
        assert setting["pack"] or whole


def test_broadcast_leading_axes():
    task = single("batch_matmul", (2, 1, 5, 6), (3, 7, 6), transpose_b=True)
    matmul = batch_product(task)
    assert (matmul.leading, matmul.batch) == ((2, 3), 6)
    assert (matmul.rows, matmul.depth, matmul.columns) == (5, 6, 7)


def test_contiguous_columns_are_read_in_place_by_default():
    task = single("batch_matmul", (12, 128, 64), (12, 64, 128), transpose_b=False)
    found, facts = check_space(SPEC, task, made_up_placement(), plain(task))
    assert best(found, facts)["pack"] is False
