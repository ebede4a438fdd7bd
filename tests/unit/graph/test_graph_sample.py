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
