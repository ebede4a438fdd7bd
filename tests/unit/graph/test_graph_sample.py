"""Random inputs that a network accepts."""

from __future__ import annotations

import numpy as np

from helpers.networks.graph_builder import Builder
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import input_limit, random_inputs


def test_types_shapes_and_seeds() -> None:
    b = Builder()
    x, ids, flags = b.input(2, 3), b.input(4, dtype="int64"), b.input(5, dtype="bool")
    graph = b.graph(x, ids, flags)
    one, again, other = (random_inputs(graph, seed) for seed in (0, 0, 1))
    for name in graph.inputs:
        assert one[name].shape == graph.types[name].shape
        assert str(one[name].dtype) == graph.types[name].dtype
        np.testing.assert_array_equal(one[name], again[name])
    assert not np.array_equal(one[x], other[x])


def test_indices_are_valid_also_behind_movements() -> None:
    b = Builder()
    ids = b.input(64, dtype="int64")
    turned = b.add("reshape", ids, shape=(8, 8))
    cast = b.add("cast", turned, dtype="int32")
    rows = b.add("gather", b.weight(3, 4), cast, axis=0)
    columns = b.add("gather", b.weight(4, 2), ids, axis=1)
    graph = b.graph(rows, columns)
    assert input_limit(graph, ids) == 2
    values = random_inputs(graph, 0)
    assert set(np.unique(values[ids])) == {0, 1}
    assert run_graph(graph, values)[rows].shape == (8, 8, 4)


def test_a_gathered_tensor_does_not_limit_itself() -> None:
    b = Builder()
    table = b.input(3, 2, dtype="int64")
    picked = b.add("gather", table, b.constant(np.array([0, 2], dtype=np.int64)), axis=0)
    assert input_limit(b.graph(picked), table) > 3


def test_what_indices_are_computed_of_counts_ones() -> None:
    """Positions are the running sum of a mask: ones and zeros keep them within their table."""
    b = Builder()
    mask, ids, more = (b.input(8, dtype="int64") for _ in range(3))
    most = b.add("slice", mask, starts=(0,), stops=(7,), steps=(1,))
    moved = b.add("pad", most, before=(1,), after=(0,), mode="constant", value=0.0)
    counted = b.add("multiply", b.add("add", mask, moved), mask)
    shifted = b.add("add", ids, b.constant(np.full(8, 30, np.int64)))
    flags = b.add("cast", b.add("equal", more, b.constant(np.ones(8, np.int64))), dtype="int64")
    tables = [b.weight(n, 4) for n in (5, 40, 2)]
    rows = [
        b.add("gather", table, index, axis=0)
        for table, index in zip(tables, (counted, shifted, flags), strict=True)
    ]
    graph = b.graph(*rows)
    assert [input_limit(graph, name) for name in (mask, ids, more)] == [2, 10, 100]
    run_graph(graph, random_inputs(graph, 0))


def test_a_table_of_indices_is_limited_and_what_chooses_in_it_by_its_length() -> None:
    b = Builder()
    table, ids = b.input(30, dtype="int64"), b.input(4, dtype="int64")
    picked = b.add("gather", table, ids, axis=0)
    graph = b.graph(b.add("gather", b.weight(7, 2), picked, axis=0))
    assert [input_limit(graph, name) for name in (table, ids)] == [7, 30]
