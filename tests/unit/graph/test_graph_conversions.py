"""Layout changes as calls of their own."""

from __future__ import annotations

import numpy as np

from helpers.networks.graph_arrangement import LANE, check_memory, forms_of, generic
from helpers.networks.graph_builder import Builder, random_inputs
from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.arrange import arrange, copying, with_conversions
from tilewright.graph.carry_out import carry_out
from tilewright.graph.evaluate import run_graph, run_workload
from tilewright.graph.fuse import fuse
from tilewright.graph.network import TensorType
from tilewright.kernels.plans import in_sequence


def test_copying_keeps_the_values() -> None:
    workload = copying(TensorType((1, 4, 2, 2)))
    value = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
    np.testing.assert_array_equal(run_workload(workload, [value]), value)


def test_readers_that_want_the_same_layout_share_a_copy() -> None:
    b = Builder()
    x = b.conv(b.input(1, 16, 6, 6), 32)
    left, right, other = b.conv(x, 16), b.conv(x, 16), b.conv(x, 32)
    graph = b.graph(b.add("concat", left, right, other, axis=1))
    network = fuse(graph)
    readers = {c.output: c for c in network.calls if x in c.inputs}
    wanted = {
        readers[left].name: (blocked(32), PLAIN),
        readers[right].name: (blocked(32), PLAIN),
        readers[other].name: (blocked(16), PLAIN),
    }
    converted, forms = with_conversions(network, forms_of(network, 16), wanted)
    (copy,) = [c for c in converted.calls if c.workload == copying(graph.types[x])]
    assert copy.inputs == (x,) and forms[copy.output] == blocked(32) and forms[x] == blocked(16)
    reads = {c.output: c.inputs[0] for c in converted.calls}
    assert reads[left] == reads[right] == copy.output and reads[other] == x
    names = [c.output for c in converted.calls]
    assert names.index(copy.output) < min(names.index(left), names.index(right))
    arranged = arrange(network, forms_of(network, 16), wanted)
    chosen = {key: generic(task.workload, task.forms) for key, task in arranged.tasks.items()}
    plan = in_sequence(arranged, LANE, chosen)
    check_memory(plan)
    assert [call.kind for call in plan.calls].count("conversion") == 1
    inputs = random_inputs(graph)
    expected, found = run_graph(graph, inputs), carry_out(plan, inputs, graph.constants)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-4)


def test_what_is_read_as_it_lies_is_not_copied_and_constants_never_are() -> None:
    b = Builder()
    x = b.conv(b.input(1, 16, 6, 6), 32)
    network = fuse(b.graph(b.conv(x, 16)))
    forms = forms_of(network, 16)
    wanted = {call.name: (blocked(32), blocked(32)) for call in network.calls[:1]}
    converted, _ = with_conversions(network, forms, wanted)
    assert len(converted.calls) == len(network.calls) + 1, "the input is copied, the weights not"
    same, placed = with_conversions(network, forms, {})
    assert same.calls == network.calls and placed == forms


def test_a_tensor_that_has_the_copys_name_is_left_alone() -> None:
    b = Builder()
    x = b.conv(b.input(1, 16, 6, 6), 32)
    network = fuse(b.graph(b.conv(x, 16)))
    reader = network.calls[-1].name
    once, forms = with_conversions(network, forms_of(network, 16), {reader: (blocked(32), PLAIN)})
    twice, placed = with_conversions(once, {**forms, x: PLAIN}, {reader: (blocked(16), PLAIN)})
    assert len({call.output for call in twice.calls}) == len(twice.calls)
    assert sorted(placed.values()).count(blocked(16)) == 1
