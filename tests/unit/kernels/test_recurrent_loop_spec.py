from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, check_space
from tilewright.graph.operators.recurrent import GATES
from tilewright.graph.workload import Workload
from tilewright.kernels.recurrent import SPEC
from tilewright.testing.implementations import (
    PLACEMENTS,
    candidate_of,
    check_packed,
    made_up_placement,
    plain,
    single,
)


def task(cell: str, steps: int, batch: int, hidden: int) -> Workload:
    columns = GATES[cell] * hidden
    named = dict(operands="", clip=0.0, reverse=False, finals=0, activations="tanh tanh tanh")
    shapes = (steps, batch, columns), (hidden, columns)
    return single("recurrent", *shapes, constants=(1,), cell=cell, **named)


@settings(max_examples=40, deadline=None)
@given(
    cell=st.sampled_from(sorted(GATES)),
    batch=st.integers(1, 20),
    hidden=st.integers(1, 700),
    on=st.sampled_from(PLACEMENTS),
)
def test_space_and_facts(cell, batch, hidden, on):
    layer = task(cell, 10, batch, hidden)
    found, facts = check_space(SPEC, layer, on, plain(layer))
    assert facts["accumulators"].max() <= on.target.vector_registers
    for setting in found:
        assert setting["block"] <= hidden
        assert setting["share"] != "sequences" or batch % setting["tile_rows"] == 0


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_weights_are_packed_in_the_order_that_the_kernel_reads(cell):
    layer, gates = task(cell, 3, 1, 20), GATES[cell]
    candidate = candidate_of(SPEC, {"block": 8, "tile_rows": 1}, plain(layer))
    constants, packed = check_packed(SPEC, layer, candidate)
    weights = constants[1].reshape(20, gates, 20)
    first = gates if cell == "lstm" else 2
    blocks = packed[1][: 3 * 20 * first * 8].reshape(3, 20, first, 8)
    assert (blocks[1, 7, 1] == weights[7, 1, 8:16]).all()
    # the last block begins earlier, so that nothing is padded
    assert (blocks[2, 7, 0] == weights[7, 0, 12:20]).all()
    if cell == "gru":
        rest = packed[1][blocks.size :].reshape(3, 20, 1, 8)
        assert (rest[2, 3, 0] == weights[3, 2, 12:20]).all()


def test_weights_that_are_computed_stay_as_they_are():
    layer = task("rnn", 3, 1, 20)
    shapes = (3, 1, 20), (20, 20)
    data = single("recurrent", *shapes, **layer.anchor.named)
    candidate = candidate_of(SPEC, {"block": 8, "tile_rows": 1}, plain(data))
    assert SPEC.packed_shapes(data, candidate) == {}
    assert SPEC.pack(data, candidate, {}) == {}


def test_threads_divide_the_columns_of_one_sequence_and_leave_tiny_layers_alone():
    for hidden, share in ((256, "columns"), (8, "alone")):
        layer = task("lstm", 64, 1, hidden)
        found, facts = check_space(SPEC, layer, made_up_placement(), plain(layer))
        assert best(found, facts)["share"] == share
