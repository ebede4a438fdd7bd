"""Sibling calls as one: which there are, that results stay, and that parts are views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.graph_arrangement import LANE, check_memory, forms_of, generic, place
from helpers.networks.graph_builder import Builder, assert_same, random_inputs, run_fused
from helpers.networks.random_graphs import graphs
from tilewright.core.errors import ModelError
from tilewright.graph.carry_out import carry_out
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import FusedNetwork, TaskCall, fuse
from tilewright.graph.network import Graph
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.siblings import inner_parts, sibling_groups, with_stacked
from tilewright.graph.tasks import collapse_rows
from tilewright.kernels.plans import lay_out


def cut(graph: Graph) -> FusedNetwork:
    network = fuse(graph)
    calls = (replace(call, workload=collapse_rows(call.workload)) for call in network.calls)
    return replace(network, calls=tuple(calls))


def check(network: FusedNetwork, stacked: FusedNetwork, block: int = 0) -> NetworkPlan:
    """The graph, the calls, and the calls in their planned memory give what they gave; every call
    stands behind what it reads."""
    assert_same(network.graph, stacked.graph)
    inputs, constants = random_inputs(network.graph), stacked.graph.constants
    wanted = run_graph(network.graph, inputs)
    written = {*stacked.graph.inputs, *constants}
    for call in stacked.calls:
        assert written.issuperset(call.inputs), call.name
        written.add(call.output)
    assert {t for call in stacked.calls for t in (*call.inputs, call.output)} <= {
        *stacked.graph.types
    }
    assert len({call.name for call in stacked.calls}) == len(stacked.calls)
    plan = lay_out(stacked, forms_of(stacked, block), LANE, generic)
    check_memory(plan)
    for found in (
        carry_out(plan, inputs, constants),
        run_fused(replace(stacked, calls=uncollapsed(stacked)), inputs),
    ):
        for name in network.graph.outputs:
            scale = max(1.0, float(np.abs(wanted[name]).max(initial=0)))
            np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-3 * scale)
    return plan


def uncollapsed(network: FusedNetwork) -> tuple[TaskCall, ...]:
    """Calls whose arguments have the shapes of the graph's tensors."""
    types = network.graph.types
    return tuple(
        replace(
            call,
            workload=replace(
                call.workload,
                arguments=tuple(
                    replace(a, type=types[t])
                    for a, t in zip(call.workload.arguments, call.inputs, strict=True)
                ),
            ),
        )
        for call in network.calls
    )


def branch(b: Builder, x: str, filters: int, *then: str, kernel: int = 1) -> str:
    y = b.add("add", b.conv(x, filters, kernel), b.weight(filters, 1, 1))
    for operator in then:
        bounds = {"minimum": 0.0, "maximum": float("inf")} if operator == "clip" else {}
        y = b.add(operator, y, **bounds)
    return y


def module(b: Builder, x: str) -> str:
    """What a module of googlenet begins with."""
    one, three, five = (branch(b, x, filters, "clip") for filters in (32, 16, 48))
    parts = one, branch(b, three, 16, "relu", kernel=3), branch(b, five, 32, "relu", kernel=5)
    return b.add("concat", *parts, axis=1)


@pytest.mark.parametrize("block", [0, 16])
def test_parts_of_a_module_are_views_of_one_result(block: int) -> None:
    b = Builder()
    network = cut(b.graph(branch(b, module(b, b.input(1, 16, 4, 4)), 8)))
    (group,) = sibling_groups(network)
    stacked = with_stacked(network, [group])
    plan = check(network, stacked, block)
    assert len(group) == 3
    (one,) = (call for call in stacked.calls if call.name == " + ".join(group))
    assert [step.operator for step in one.workload.steps] == ["conv2d", "add", "clip"]
    assert stacked.graph.types[one.output].shape == (1, 96, 4, 4)
    kernels = [call.workload.anchor_name for call in plan.calls if call.kind == "kernel"]
    assert kernels == ["conv2d"] * 4, "every slice is a view, and the concatenation is in place"
    (joined,) = (c.output for c in network.calls if c.workload.anchor_name == "concat")
    home, offset = place(plan, joined)
    assert (home, offset) == (place(plan, one.output)[0], 64 * 16 * 4)
    assert place(plan, one.output)[1] == 0, "what is joined begins with the last of its parts"
    (inner,) = inner_parts(network, [group])
    assert inner == group[:-1]
    check(network, with_stacked(network, [inner]), block)


def test_modules_behind_each_other_are_stacked_together() -> None:
    b = Builder()
    network = cut(b.graph(branch(b, module(b, module(b, b.input(1, 16, 4, 4))), 8)))
    groups = sibling_groups(network)
    assert [len(group) for group in groups] == [3, 3]
    check(network, with_stacked(network, groups), 16)
    assert with_stacked(network, []) == network


def test_dense_layers_of_one_row_are_stacked() -> None:
    b = Builder()
    x = b.input(1, 24)
    towers = [
        b.add("relu", b.add("add", b.add("dense", x, b.weight(24, width)), b.weight(width)))
        for width in (16, 32, 48)
    ]
    ends = [b.add("dense", tower, b.weight(b.types[tower].shape[1], 5)) for tower in towers]
    network = cut(b.graph(*ends))
    (group,) = sibling_groups(network)
    plan = check(network, with_stacked(network, [group]))
    assert [call.workload.anchor_name for call in plan.calls] == ["dense"] * 4


def test_what_computes_otherwise_or_goes_elsewhere_is_no_sibling() -> None:
    b = Builder()
    x, y = b.input(1, 16, 4, 4), b.input(1, 16, 4, 4)
    usual = branch(b, x, 16, "relu")
    apart = [
        branch(b, y, 16, "relu"),  # of another image
        branch(b, x, 16, "tanh"),  # with another step
        branch(b, x, 16, "relu", kernel=3),
        b.add("relu", b.conv(x, 16, 1)),  # without a bias
        b.add("relu", b.add("add", b.conv(x, 16, 1, groups=2), b.weight(16, 1, 1))),
        b.add("relu", b.add("add", b.add("add", b.conv(x, 16, 1), b.weight(16, 1, 1)), y)),
        b.add("multiply", branch(b, x, 16, "relu"), b.constant(2.0)),
        b.add("multiply", branch(b, x, 16, "relu"), b.constant(3.0)),
    ]
    output = branch(b, x, 16, "relu")
    last = [b.conv(each, 4) for each in (usual, *apart)]
    network = cut(b.graph(*last, output))
    assert sibling_groups(network) == []


@pytest.mark.parametrize("operator", ["add", "multiply"])
@pytest.mark.parametrize("anchor", ["conv2d", "dense"])
def test_calls_that_read_their_operand_again_are_no_siblings(operator: str, anchor: str) -> None:
    """All their channels together are more than the operand has."""
    b = Builder()
    x = b.input(1, 16, 4, 4) if anchor == "conv2d" else b.input(1, 16)

    def product(read: str, width: int) -> str:
        if anchor == "conv2d":
            return b.conv(read, width, 1)
        return b.add("dense", read, b.weight(16, width))

    ends = [product(b.add("relu", b.add(operator, product(x, 16), x)), 4) for _ in range(2)]
    network = cut(b.graph(*ends))
    assert len(network.calls) == 4 and sibling_groups(network) == []
    with pytest.raises(ModelError, match="cannot be stacked"):
        with_stacked(network, [tuple(call.name for call in network.calls[:2])])


def test_activations_of_several_steps_and_shared_constants_go_along() -> None:
    b = Builder()
    x, bias = b.input(1, 16, 4, 4), b.weight(16, 1, 1)
    sums = [b.add("add", b.conv(x, 16, 1), bias) for _ in range(2)]
    sums.append(branch(b, x, 32))
    ends = [b.conv(b.add("multiply", y, b.add("sigmoid", y)), 4) for y in sums]
    network = cut(b.graph(*ends))
    (group,) = sibling_groups(network)
    assert len(group) == 3
    check(network, with_stacked(network, [group]), 16)


def test_only_the_first_operand_of_a_lone_concatenation_is_stacked_with_others() -> None:
    def groups(*axes: int, twice: bool = False, pinned: bool = False) -> list[int]:
        b = Builder()
        x = b.input(1, 16, 8, 8)
        one, two, three = (branch(b, x, 16, "relu") for _ in range(3))
        read = [one, b.conv(two, 16), *([one] if twice else [])]
        joins = [b.add("concat", *read, axis=axis) for axis in axes]
        ends = joins if pinned else [b.conv(join, 16) for join in joins]
        return [len(g) for g in sibling_groups(cut(b.graph(*ends, b.conv(three, 16))))]

    assert groups(1) == [3]
    for found in (groups(2), groups(1, 1), groups(1, twice=True), groups(1, pinned=True)):
        assert found == [2]


@pytest.mark.parametrize(
    "names", [("node0", "no such call"), ("node0",), ("node0", "node0"), ("node0", "node9")]
)
def test_calls_that_cannot_be_stacked_are_refused(names: tuple[str, ...]) -> None:
    b = Builder()
    network = cut(b.graph(branch(b, module(b, b.input(1, 16, 4, 4)), 8)))
    with pytest.raises(ModelError, match="cannot be stacked"):
        with_stacked(network, [names])
    (group,) = sibling_groups(network)
    with pytest.raises(ModelError, match="cannot be stacked"):
        with_stacked(network, [group[::-1]])


@settings(max_examples=60)
@given(graphs(), st.sampled_from([0, 4]))
def test_drawn_graphs_keep_their_results(graph: Graph, block: int) -> None:
    network = cut(graph)
    check(network, with_stacked(network, sibling_groups(network)), block)


@st.composite
def modular(draw: st.DrawFn) -> Graph:
    """Convolutions and dense layers of few tensors, joined in some order."""
    b = Builder(draw(st.integers(0, 3)))
    live = [b.input(draw(st.integers(1, 2)), 4, 3, 3)]
    for _ in range(draw(st.integers(1, 3))):
        x, made = draw(st.sampled_from(live)), list[str]()
        for _ in range(draw(st.integers(2, 4))):
            then = draw(st.lists(st.sampled_from(["relu", "clip", "tanh"]), max_size=1))
            filters, kernel = draw(st.sampled_from([1, 4, 8])), draw(st.sampled_from([1, 1, 3]))
            made.append(branch(b, x, filters, *then, kernel=kernel))
        parts = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4))
        live += [*made, b.add("concat", *parts, axis=1)]
    ends = draw(st.lists(st.sampled_from(live[1:]), min_size=1, max_size=3, unique=True))
    return b.graph(*[b.conv(end, 4) for end in ends], *ends[:1])


@settings(max_examples=150)
@given(modular(), st.sampled_from([0, 4]), st.booleans())
def test_drawn_modules_keep_their_results(graph: Graph, block: int, inner: bool) -> None:
    network = cut(graph)
    groups = sibling_groups(network)
    groups = inner_parts(network, groups) if inner else groups
    check(network, with_stacked(network, groups), block)


def test_a_part_that_begins_a_concatenation_is_cut_where_others_read_it_too() -> None:
    b = Builder()
    x = b.input(1, 4, 3, 3)
    first, second = branch(b, x, 4), branch(b, x, 4)
    joined = b.add("concat", first, x, axis=1)
    network = cut(b.graph(*(b.conv(each, 4) for each in (joined, first, second))))
    (group,) = sibling_groups(network)
    check(network, with_stacked(network, [group]))
