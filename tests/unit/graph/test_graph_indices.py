"""Which inputs are indices, and what they may be."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.graph_builder import Builder
from tilewright.graph.inputs import (
    IndexRange,
    IndexUse,
    argument_limit,
    argument_uses,
    index_limit,
    indices_text,
    input_ranges,
    random_inputs,
)
from tilewright.graph.network import Graph, Node, TensorType, attributes
from tilewright.graph.operators import results_text
from tilewright.graph.tasks import fused_network

pytestmark = pytest.mark.regression


def axis(extent: int) -> IndexRange:
    return IndexRange.of_axis(extent)


def opaque_gather(shape: tuple[int, ...], *ranges: IndexRange) -> Graph:
    """A node of positions in a 4 × 6 table, behind a cast."""
    b = Builder()
    ids, table = b.input(*shape, dtype="int32"), b.weight(4, 6)
    wide = b.add("cast", ids, dtype="int64")
    b.types["y"] = kind = TensorType((shape[0],))
    named = attributes(
        model="",
        results=results_text((kind,)),
        indices=indices_text([IndexUse(port=1, ranges=ranges)]),
    )
    b.nodes.append(
        Node(name="nd", operator="opaque", inputs=(table, wide), outputs=("y",), attributes=named)
    )
    return b.graph("y")


def test_the_smallest_table_counts_also_behind_movements() -> None:
    b = Builder()
    ids = b.input(64, dtype="int64")
    turned = b.add("cast", b.add("reshape", ids, shape=(8, 8)), dtype="int32")
    rows = b.add("gather", b.weight(3, 4), turned, axis=0)
    columns = b.add("gather", b.weight(4, 2), ids, axis=1)
    assert input_ranges(b.graph(rows, columns)) == {ids: (axis(2),)}


def test_parts_and_sums_are_left_to_the_network() -> None:
    """What is cut off may hold anything, and the range of a sum is another one."""
    b = Builder()
    ids = b.input(8, dtype="int64")
    part = b.add("slice", ids, starts=(0,), stops=(4,), steps=(1,))
    total = b.add("add", ids, b.constant(np.array(1)))
    table = b.weight(3, 4)
    assert input_ranges(b.graph(*(b.add("gather", table, i, axis=0) for i in (part, total)))) == {}


def test_floats_are_no_indices() -> None:
    b = Builder()
    x = b.input(8)
    graph = b.graph(b.add("gather", b.weight(3, 4), b.add("cast", x, dtype="int64"), axis=0))
    assert input_ranges(graph) == {}


def test_data_that_is_gathered_is_free() -> None:
    b = Builder()
    table = b.input(3, 2, dtype="int64")
    assert input_ranges(b.graph(b.add("gather", table, b.constant(np.array([0, 2])), axis=0))) == {}


def test_positions_have_a_range_per_column() -> None:
    graph = opaque_gather((5, 2), axis(4), axis(6))
    assert input_ranges(graph) == {graph.inputs[0]: (axis(4), axis(6))}
    (call,) = [c for c in fused_network(graph).calls if c.workload.steps[0].operator == "opaque"]
    (use,) = argument_uses(call.workload)
    assert call.workload.arguments[use.port].type.dtype == "int64"
    assert use.ranges == (axis(4), axis(6))
    assert argument_limit(call.workload) == 4
    assert random_inputs(graph, 0)[graph.inputs[0]].max() == 3


@pytest.mark.parametrize(("usual", "limit"), [(100, 4), (2, 2)])
def test_limit_of_random_indices(usual: int, limit: int) -> None:
    assert index_limit([IndexUse(port=1, ranges=(axis(4), axis(6)))], usual) == limit
    assert index_limit([IndexUse(port=1, ranges=(axis(0),))], usual) == 1
    assert index_limit([], usual) == usual
