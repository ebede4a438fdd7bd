"""New rows of a cache: recognised, and written in its own memory where nobody minds."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.graph_arrangement import arranged, place
from helpers.networks.graph_builder import Builder, assert_same, operators
from tilewright.graph.carry_out import carry_out
from tilewright.graph.clean import clean
from tilewright.graph.evaluate import magnitude, run_graph
from tilewright.graph.network import Graph, TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Argument, Step, Workload

SHAPE = (1, 2, 5, 3)


def chosen(b: Builder, cache: str, row: str, axis: int, slots: object = None) -> str:
    """A choice between a new row and a cache by a place that is an input, as models write it."""
    extent = b.types[cache].shape[axis]
    spread = (extent, *(1 for _ in b.types[cache].shape[axis + 1 :]))
    every = b.constant(np.reshape(np.arange(extent) if slots is None else slots, spread))
    return b.add("where", b.add("equal", every, b.input(1, dtype="int64")), row, cache)


def given(graph: Graph, at: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(at + 1)
    kinds = {name: graph.types[name] for name in graph.inputs}
    return {
        name: np.array([at]) if kind.dtype == "int64" else rng.standard_normal(kind.shape, "f4")
        for name, kind in kinds.items()
    }


@pytest.mark.parametrize("axis", [1, 2])
def test_a_choice_by_place_is_a_write_in_the_memory_of_the_cache(axis: int) -> None:
    b = Builder()
    row = b.add("relu", b.input(*(1 if i == axis else n for i, n in enumerate(SHAPE))))
    cache = b.input(*SHAPE)
    present = chosen(b, cache, row, axis)
    graph = b.graph(b.add("reduce_sum", present, axes=(3,), keepdims=False), present)
    result = clean(graph)
    assert operators(result) == ["relu", "cache_write", "reduce_sum"]
    plan = arranged(result)
    assert place(plan, present) == (cache, 0)
    for at in (0, SHAPE[axis] - 1, SHAPE[axis], -1):
        wanted = run_graph(graph, given(graph, at))
        for found in (
            run_graph(result, given(graph, at)),
            carry_out(plan, given(graph, at), result.constants),
        ):
            for name in graph.outputs:
                np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6)


def test_what_is_no_cache_stays_a_choice() -> None:
    for slots, row_shape in (((0, 1, 2, 4, 3), (1, 2, 1, 3)), (None, (1, 1, 1, 3))):
        b = Builder()
        graph = b.graph(chosen(b, b.input(*SHAPE), b.input(*row_shape), 2, slots))
        assert "where" in operators(clean(graph))
        assert_same(graph, clean(graph))
    b = Builder()
    between = b.add("relu", b.input(*SHAPE))
    assert "where" in operators(clean(b.graph(chosen(b, between, b.input(1, 2, 1, 3), 2))))


@pytest.mark.parametrize("case", ["read", "handed out", "twice"])
def test_a_cache_that_somebody_else_wants_is_copied(case: str) -> None:
    b = Builder()
    cache, row, at = b.input(*SHAPE), b.input(1, 2, 1, 3), b.input(1, dtype="int64")
    present = b.add("cache_write", cache, row, at, axis=2)
    outputs = {
        "read": (present, b.add("tanh", cache)),
        "handed out": (present, cache),
        "twice": (present, b.add("cache_write", cache, row, at, axis=2)),
    }[case]
    graph = b.graph(*outputs)
    plan = arranged(graph)
    assert place(plan, present)[0] != cache
    wanted, found = run_graph(graph, given(graph, 1)), carry_out(plan, given(graph, 1), {})
    for name, made in zip(graph.outputs, plan.outputs, strict=True):
        np.testing.assert_array_equal(found[made], wanted[name])


def test_its_error_is_relative_to_what_is_written() -> None:
    kinds = (TensorType((4, 2)), TensorType((1, 2)), TensorType((1,), "int64"))
    step = Step(operator="cache_write", inputs=(0, 1, 2), attributes=(("axis", 0),))
    task = Workload(arguments=tuple(Argument(type=kind) for kind in kinds), steps=(step,))
    arrays = [np.full((4, 2), -3, "f4"), np.full((1, 2), 5, "f4"), np.array([2])]
    assert magnitude(task, arrays)[:, 0].tolist() == [3, 3, 5, 3]
    assert OPERATORS["cache_write"].infer(kinds, {"axis": 0}) == kinds[0]
