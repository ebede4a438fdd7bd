"""Views, in-place concatenations, and the memory that follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from helpers.networks.graph_arrangement import arranged, check_memory, place
from helpers.networks.graph_builder import Builder, random_inputs
from helpers.networks.random_graphs import graphs
from tilewright.graph.carry_out import carry_out
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Graph
from tilewright.graph.plan import NetworkPlan

BLOCKS = [0, 16]


def check(graph: Graph, block: int = 0) -> NetworkPlan:
    """Memory is sound, and running the calls in that memory gives the graph's outputs."""
    plan = arranged(graph, block)
    check_memory(plan)
    inputs = random_inputs(graph)
    wanted, got = run_graph(graph, inputs), carry_out(plan, inputs, graph.constants)
    for name in graph.outputs:
        scale = max(1.0, float(np.abs(wanted[name]).max(initial=0)))
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=1e-3 * scale)
    return plan


def copies(plan: NetworkPlan) -> list[str]:
    return [
        item.inputs[0]
        for item in plan.calls
        if [step.operator for step in item.workload.steps] == ["identity"]
    ]


def concatenations(plan: NetworkPlan) -> int:
    return sum(c.workload.anchor_name == "concat" for c in plan.calls)


@pytest.mark.parametrize("block", BLOCKS)
def test_producers_write_into_a_concatenation(block: int) -> None:
    b = Builder()
    x = b.input(1, 16, 4, 4)
    left, right = b.conv(x, 32), b.conv(x, 16)
    both = b.add("concat", left, right, axis=1)
    plan = check(b.graph(b.conv(both, 16)), block)
    assert place(plan, left) == (both, 0)
    assert place(plan, right) == (both, 32 * 16 * 4)
    assert not copies(plan) and not concatenations(plan)


@pytest.mark.parametrize("block", BLOCKS)
def test_dense_chains_share_one_buffer(block: int) -> None:
    b = Builder()
    current = b.conv(b.input(1, 16, 4, 4), 16)
    for _ in range(4):
        new = b.conv(b.add("relu", current), 16)
        current = b.add("concat", current, new, axis=1)
    plan = check(b.graph(b.conv(current, 16)), block)
    assert not copies(plan) and not concatenations(plan)
    roots = {t.root for name, t in plan.tensors.items() if t.root != name}
    assert roots == {current}


@pytest.mark.parametrize("block", BLOCKS)
def test_inputs_outputs_and_constants_are_copied(block: int) -> None:
    b = Builder()
    x = b.input(1, 16, 4, 4)
    shown, constant = b.conv(x, 16), b.weight(1, 16, 4, 4)
    inner = b.conv(x, 16)
    both = b.add("concat", x, shown, constant, inner, axis=1)
    plan = check(b.graph(b.conv(both, 16), shown), block)
    assert copies(plan) == [x, shown, constant]
    assert place(plan, inner)[0] == both


@pytest.mark.parametrize("block", BLOCKS)
def test_a_concatenation_that_is_an_output(block: int) -> None:
    b = Builder()
    x = b.input(1, 16, 4, 4)
    left, right = b.conv(x, 16), b.conv(x, 16)
    both = b.add("concat", left, right, axis=1)
    check(b.graph(both, b.conv(both, 8)), block)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_same_tensor_twice(block: int) -> None:
    b = Builder()
    once = b.conv(b.input(1, 16, 4, 4), 16)
    other = b.conv(once, 16)
    twice = b.add("concat", once, other, once, axis=1)
    plan = check(b.graph(b.conv(twice, 16)), block)
    assert copies(plan) == [once, once]


@pytest.mark.parametrize("block", BLOCKS)
def test_one_tensor_in_two_concatenations(block: int) -> None:
    b = Builder()
    x = b.input(1, 16, 4, 4)
    shared, left, right = b.conv(x, 16), b.conv(x, 16), b.conv(x, 16)
    first = b.add("concat", shared, left, axis=1)
    second = b.add("concat", right, shared, axis=1)
    graph = b.graph(b.add("add", b.conv(first, 16), b.conv(second, 16)))
    plan = check(graph, block)
    assert copies(plan) == [shared]
    assert not concatenations(plan)


def test_views_of_views_cost_nothing() -> None:
    b = Builder()
    x = b.conv(b.input(1, 16, 4, 4), 16)
    flat = b.add("reshape", b.add("reshape", x, shape=(256,)), shape=(4, 64))
    out = b.add("softmax", flat, axis=1)
    plan = check(b.graph(b.add("reshape", out, shape=(2, 128))))
    assert place(plan, flat)[0] == x


def test_views_of_parts_of_a_concatenation() -> None:
    b = Builder()
    x = b.input(1, 16, 4, 4)
    left, right = b.conv(x, 16), b.conv(x, 16)
    both = b.add("concat", left, right, axis=1)
    view = b.add("reshape", right, shape=(16, 16))
    soft = b.add("softmax", view, axis=1)
    plan = check(b.graph(b.conv(both, 8), soft))
    assert place(plan, view) == (both, 1024)


def test_misaligned_offsets_stay_a_kernel() -> None:
    b = Builder()
    x = b.input(1, 16, 3, 3)
    left, right, third = b.conv(x, 5), b.conv(x, 6), b.conv(x, 16)
    odd = b.add("concat", left, right, axis=1)
    even = b.add("concat", third, right, axis=1)
    plan = check(b.graph(b.add("add", b.conv(odd, 4), b.conv(even, 4))))
    assert concatenations(plan) == 1
    assert place(plan, right)[0] == even, "a misaligned one must not undo another"


def test_other_axes_and_batches_stay_kernels() -> None:
    b = Builder()
    x = b.input(2, 16, 4, 4)
    left, right = b.conv(x, 16), b.conv(x, 16)
    channels = b.add("concat", left, right, axis=1)
    rows = b.add("concat", left, right, axis=2)
    graph = b.graph(b.conv(channels, 8), b.conv(rows, 8))
    assert concatenations(check(graph)) == 2
    check(graph, 16)


def test_the_batch_axis_goes_in_place_when_plain() -> None:
    b = Builder()
    x = b.input(2, 16)
    parts = [b.add("dense", x, b.weight(16, 32)) for _ in range(3)]
    both = b.add("concat", *parts, axis=0)
    assert not concatenations(check(b.graph(b.add("softmax", both, axis=1))))


@pytest.mark.parametrize(("start", "offset"), [(16, 16 * 16 * 4), (8, None)])
def test_whole_blocks_of_channels_are_views(start: int, offset: int | None) -> None:
    b = Builder()
    x = b.conv(b.input(1, 16, 4, 4), 48)
    part = b.add("slice", x, starts=(0, start, 0, 0), stops=(1, start + 16, 4, 4), steps=(1,) * 4)
    plan = check(b.graph(b.add("add", b.conv(x, 16), b.conv(part, 16))), 16)
    assert place(plan, part) == ((part, 0) if offset is None else (x, offset))


@pytest.mark.parametrize(
    ("starts", "stops", "steps"),
    [
        ((0, 1, 0), (1, 4, 16), (1, 1, 1)),
        ((0, 0, 4), (1, 4, 12), (1, 1, 1)),
        ((0, 0, 0), (1, 4, 16), (1, 2, 1)),
        ((0, 3, 0), (1, -1, 16), (1, -1, 1)),
        ((0, 0, 0), (1, 2, 8), (1, 1, 1)),
    ],
    ids=["rows", "columns", "every second row", "rows turned", "a corner"],
)
def test_what_of_a_tensor_is_a_view(
    starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    b = Builder()
    x = b.add("softmax", b.input(1, 4, 16), axis=2)
    part = b.add("slice", x, starts=starts, stops=stops, steps=steps)
    plan = check(b.graph(b.add("softmax", x, axis=1), b.add("softmax", part, axis=2)))
    assert place(plan, part) == ((x, 64) if starts == (0, 1, 0) else (part, 0))


def test_a_part_of_a_concatenation_written_in_place() -> None:
    b = Builder()
    x = b.conv(b.input(1, 16, 4, 4), 32)
    upper = b.add("slice", x, starts=(0, 16, 0, 0), stops=(1, 32, 4, 4), steps=(1,) * 4)
    both = b.add("concat", x, b.conv(upper, 16), axis=1)
    plan = check(b.graph(b.conv(both, 16)), 16)
    assert place(plan, upper) == (both, 16 * 16 * 4)
    assert not copies(plan) and not concatenations(plan)


def test_copied_slices_do_not_take_the_name_of_a_tensor() -> None:
    b = Builder()
    x = b.input(1, 16, 4, 4)
    made = b.conv(x, 16)
    both = b.add("concat", x, made, axis=1)
    graph = b.graph(b.add("add", b.conv(both, 16), b.add("tanh", b.conv(made, 16))))
    renamed = rename(graph, {both: "y", graph.nodes[4].output: "y/0", made: "y/1"})
    check(renamed)


def rename(graph: Graph, names: dict[str, str]) -> Graph:
    from dataclasses import replace

    def new(tensor: str) -> str:
        return names.get(tensor, tensor)

    nodes = tuple(
        replace(n, inputs=tuple(map(new, n.inputs)), outputs=tuple(map(new, n.outputs)))
        for n in graph.nodes
    )
    return replace(
        graph,
        nodes=nodes,
        outputs=tuple(map(new, graph.outputs)),
        types={new(name): kind for name, kind in graph.types.items()},
    )


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_random_graphs(graph: Graph) -> None:
    for block in (0, 2, 4):
        check(graph, block)
