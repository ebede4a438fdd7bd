"""Networks in parts: together they compute what the whole computes, and none waits for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.networks.fused_networks import planned
from helpers.networks.graph_builder import Builder, random_inputs
from helpers.networks.random_graphs import graphs
from tilewright.core.errors import InternalError
from tilewright.graph.arrange import is_concatenation, may_be_view
from tilewright.graph.carry_out import carry_out
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import FusedNetwork, fuse
from tilewright.graph.network import Array, Graph
from tilewright.graph.parts import Part, Place, cut
from tilewright.graph.siblings import sibling_groups, with_stacked

LEFT: Place = ("left", (0,))
RIGHT: Place = ("right", (0, 1))
BESIDE: Place = ("left", (1,))


def computed(parts: Sequence[Part], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """All tensors that go in or out of parts, which run as soon as what they read is there."""
    known, waiting = dict(inputs), list(parts)
    while waiting:
        ready = [p for p in waiting if all(t in known for t in p.network.graph.inputs)]
        assert ready, "parts wait for each other"
        part = ready[-1]  # not the first: any order does
        waiting.remove(part)
        graph = part.network.graph
        given = {name: known[name] for name in graph.inputs}
        found = carry_out(planned(part.network), given, graph.constants)
        assert not found.keys() & known.keys(), "a tensor has two names or two writers"
        known |= found
    return known


def in_steps(network: FusedNetwork, places: Sequence[Place]) -> list[tuple[str, Place]]:
    """Each call at one of the places in turn, those that may be free left out."""
    fixed = [c for c in network.calls if not (may_be_view(c) or is_concatenation(c))]
    return [(call.name, places[n % len(places)]) for n, call in enumerate(fixed)]


@given(graph=graphs(), places=st.lists(st.sampled_from([LEFT, RIGHT, BESIDE]), min_size=1))
def test_parts_together_are_the_whole(graph: Graph, places: list[Place]) -> None:
    network = fuse(graph)
    order = in_steps(network, places)
    if not order:
        return
    parts = cut(network, order)
    placed = [name for part in parts for name in part.calls]
    assert len(set(placed)) == len(placed) and {name for name, _ in order} <= set(placed)
    for number, part in enumerate(parts):
        assert all(before < number for before in part.after)
    inputs = random_inputs(graph)
    whole = run_graph(network.graph, inputs)
    found = computed(parts, {name: inputs[name] for name in network.graph.inputs})
    for tensor in network.graph.outputs:
        scale = 1e-4 * max(1.0, float(np.abs(whole[tensor]).max()))
        np.testing.assert_allclose(found[tensor], whole[tensor], rtol=1e-3, atol=scale)


def fork() -> FusedNetwork:
    """stem → left, right → joined → head: by their names, which are those of their convolutions."""
    b = Builder()
    stem = b.conv(b.input(1, 4, 5, 5), 4)
    left, right = b.conv(stem, 4), b.conv(stem, 4)
    return fuse(b.graph(b.conv(b.add("concat", left, right, axis=1), 4)))


def test_a_part_ends_where_others_wait_for_it_and_begins_where_it_waits() -> None:
    network = fork()
    stem, left, right, joined, head = (call.name for call in network.calls)
    order = [(stem, LEFT), (left, LEFT), (right, RIGHT), (head, LEFT)]
    parts = cut(network, order)
    assert [(part.place, part.calls) for part in parts] == [
        (LEFT, (stem,)),
        (LEFT, (left,)),
        (RIGHT, (right,)),
        (LEFT, (head,)),
    ]
    assert [part.after for part in parts] == [(), (0,), (0,), (1, 2)]
    assert [call.name for call in parts[3].network.calls] == [joined, head]
    (whole,) = cut(network, [(name, LEFT) for name, _ in order])
    assert whole.calls == (stem, left, right, head) and whole.after == ()
    assert len(whole.network.calls) == 5 and whole.name == f"{stem} … {head}"


@given(places=st.lists(st.sampled_from([LEFT, RIGHT, BESIDE]), min_size=1, max_size=8))
def test_stacked_calls_are_read_at_any_place(places: list[Place]) -> None:
    """Parts of what they write are cut from all of it wherever these are read."""
    b = Builder()
    x = b.input(1, 4, 5, 5)
    one, two, three = (b.add("relu", b.conv(x, filters, 1)) for filters in (4, 8, 4))
    joined = b.add("concat", one, b.conv(two, 4), b.conv(three, 8), axis=1)
    fused = fuse(b.graph(b.conv(joined, 4), b.conv(joined, 8)))
    network = with_stacked(fused, sibling_groups(fused))
    assert len(network.calls) == len(fused.calls) - 2 + 3
    inputs = random_inputs(fused.graph)
    whole = run_graph(fused.graph, inputs)
    found = computed(cut(network, in_steps(network, places)), inputs)
    for tensor in fused.graph.outputs:
        np.testing.assert_allclose(found[tensor], whole[tensor], rtol=1e-3, atol=1e-3)


def test_what_is_joined_at_two_places_is_joined_at_both() -> None:
    b = Builder()
    x = b.input(1, 4, 5, 5)
    joined = b.add("concat", b.conv(x, 4), b.conv(x, 4), axis=1)
    network = fuse(b.graph(b.conv(joined, 4), b.conv(joined, 4), joined))
    one, two, joining, three, four = (call.name for call in network.calls)
    parts = cut(network, [(one, LEFT), (two, RIGHT), (three, LEFT), (four, RIGHT)])
    doing = [part.place for part in parts if joining in [c.name for c in part.network.calls]]
    assert doing == [LEFT, RIGHT]
    writing = [part for part in parts if joining in part.calls]
    (writer,) = writing
    assert network.graph.outputs[2] in writer.network.graph.outputs


def test_nothing_placed() -> None:
    with pytest.raises(InternalError, match="no call"):
        cut(fork(), [])
