"""Fusion keeps the meaning, takes what it should, and gives canonical workloads."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.graph_builder import Builder, random_inputs, run_fused
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import FusedNetwork, fuse
from tilewright.graph.network import Graph, Node, TensorType, attributes
from tilewright.graph.operators import results_text
from tilewright.graph.workload import parse_workload


def fused(graph: Graph) -> FusedNetwork:
    network = fuse(graph)
    inputs = random_inputs(graph)
    wanted = run_graph(network.graph, inputs)
    got = run_fused(network, inputs)
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)
    covered = [name for call in network.calls for name in call.nodes]
    assert sorted(covered) == sorted(node.name for node in network.graph.nodes)
    assert len({call.name for call in network.calls}) == len(network.calls)
    for call in network.calls:
        assert parse_workload(call.workload.text) == call.workload
        assert parse_workload(call.workload.text).key == call.workload.key
        assert call.workload.result == network.graph.types[call.output]
    return network


def steps(network: FusedNetwork) -> list[list[str]]:
    return [[step.operator for step in call.workload.steps] for call in network.calls]


def test_later_convolution_takes_the_addition() -> None:
    b = Builder()
    x = b.input(1, 4, 6, 6)
    left = b.add("add", b.conv(x, 4), b.weight(4, 1, 1))
    right = b.add("add", b.conv(x, 4), b.weight(4, 1, 1))
    y = b.add("clip", b.add("add", left, right), minimum=0.0, maximum=float("inf"))
    network = fused(b.graph(y))
    assert steps(network) == [["conv2d", "add"], ["conv2d", "add", "add", "clip"]]
    roles = [argument.role for argument in network.calls[1].workload.arguments]
    assert roles == ["data", "constant", "constant", "data"]
    assert '"maximum":"inf"' in network.calls[1].workload.text


def test_chain_stops_at_readers_outputs_and_shapes() -> None:
    b = Builder()
    a = b.conv(b.input(1, 4, 6, 6), 4)
    r = b.add("relu", a)
    t, s = b.add("tanh", r), b.add("sigmoid", r)
    grown = b.add("add", b.add("reduce_mean", t, axes=(2, 3), keepdims=True), s)
    network = fused(b.graph(grown, a))
    assert [s for s in steps(network) if "conv2d" in s] == [["conv2d"]]
    assert [s for s in steps(network) if "reduce_mean" in s] == [["tanh", "reduce_mean"]]


def test_value_used_twice_in_elementwise_group() -> None:
    b = Builder()
    x = b.input(3, 4)
    y = b.add("add", x, b.constant(1.0))
    y = b.add("multiply", y, b.add("tanh", b.add("softplus", y)))
    network = fused(b.graph(y))
    assert steps(network) == [["add", "softplus", "tanh", "multiply"]]


def test_ways_that_meet_again_go_along_and_others_do_not() -> None:
    b = Builder()
    x, w = b.input(3, 4), b.weight(4, 4)
    y = b.add("dense", x, w)
    gate = b.add("multiply", b.add("tanh", y), b.add("add", y, b.input(4)))
    z = b.add("dense", gate, w)
    narrow = b.add("reduce_sum", z, axes=(1,), keepdims=True)
    apart = b.add("multiply", b.add("sigmoid", z), narrow)
    network = fused(b.graph(apart))
    assert steps(network) == [
        ["dense", "tanh", "add", "multiply"],
        ["dense"],
        ["reduce_sum"],
        ["sigmoid", "multiply"],
    ]


def test_what_only_a_reduction_reads_goes_along() -> None:
    b = Builder()
    x = b.input(3, 4)
    y = b.add("reduce_sum", b.add("multiply", x, x), axes=(1,), keepdims=True)
    seen = b.add("negative", x)
    z = b.add("reduce_max", seen, axes=(1,), keepdims=True)
    costly = b.add("exp", b.add("exp", b.add("exp", x)))
    w = b.add("reduce_sum", costly, axes=(1,), keepdims=True)
    network = fused(b.graph(y, seen, z, w))
    assert sorted(steps(network)) == [
        ["exp", "exp", "exp"],
        ["multiply", "reduce_sum"],
        ["negative"],
        ["reduce_max"],
        ["reduce_sum"],
    ]


@pytest.mark.parametrize(("dtype", "tasks"), [("float64", 1), ("float16", 2), ("int64", 2)])
def test_reductions_by_rows_alone_take_along(dtype: str, tasks: int) -> None:
    b = Builder()
    x = b.input(3, 4, dtype=dtype)
    y = b.add("reduce_sum", b.add("multiply", x, x), axes=(1,), keepdims=True)
    assert len(steps(fused(b.graph(y)))) == tasks


def test_groups_have_caps() -> None:
    b = Builder()
    y = b.input(3, 4)
    for _ in range(30):
        y = b.add("tanh", y)
    for _ in range(12):
        y = b.add("add", y, b.input(3, 4))
    network = fused(b.graph(y))
    assert max(len(call.workload.steps) for call in network.calls) <= 12
    assert max(len(call.workload.arguments) for call in network.calls) <= 8


def test_movements_merge_but_not_with_concat() -> None:
    b = Builder()
    x = b.input(2, 6, 4)
    y = b.add("reshape", b.add("tanh", x), shape=(2, 3, 2, 4))
    y = b.add("transpose", y, permutation=(0, 2, 1, 3))
    y = b.add("multiply", y, b.constant(2.0))
    z = b.add("relu", b.add("concat", b.add("transpose", y, permutation=(1, 0, 2, 3)), y, axis=1))
    network = fused(b.graph(b.add("reshape", z, shape=(96,))))
    assert steps(network) == [
        ["tanh"],
        ["reshape", "transpose", "multiply"],
        ["transpose"],
        ["concat"],
        ["relu"],
        ["reshape"],
    ]
    assert network.calls[1].workload.anchor_name == "reshape"


def test_lone_reshape_is_a_call() -> None:
    b = Builder()
    y = b.add("tanh", b.add("reshape", b.add("relu", b.input(4, 3)), shape=(12,)))
    assert steps(fused(b.graph(y))) == [["relu"], ["reshape"], ["tanh"]]


def test_equal_subgraphs_have_equal_keys() -> None:
    b = Builder()
    x = b.input(1, 4, 6, 6)
    y = b.add("relu", b.add("add", b.conv(x, 4), b.weight(4, 1, 1)))
    z = b.add("relu", b.add("add", b.weight(4, 1, 1), b.conv(y, 4)))
    network = fused(b.graph(z))
    assert len(network.calls) == 2 and len(network.workloads) == 1
    assert network.calls[0].workload.key == "conv2d-961439542415c08e"


def test_inputs_and_constants_as_outputs() -> None:
    b = Builder()
    x, c = b.input(2), b.weight(3)
    network = fused(b.graph(x, c, b.add("relu", c)))
    assert network.graph.outputs == ("x0.output", "c0", "t0")
    assert steps(network) == [["relu"], ["identity"], ["identity"]]


def test_opaque_gives_a_call_per_used_output() -> None:
    kinds = (TensorType((2,)), TensorType((3,), "int64"), TensorType((4,)))
    node = Node(
        name="op",
        operator="opaque",
        inputs=("x",),
        outputs=("a", "b", "c"),
        attributes=attributes(model="AA==", results=results_text(kinds)),
    )
    types = {"x": TensorType((9,)), **dict(zip("abc", kinds, strict=True))}
    graph = Graph(name="g", nodes=(node,), inputs=("x",), outputs=("a", "c"), types=types)
    network = fuse(graph)
    assert [call.output for call in network.calls] == ["a", "c"]
    assert [call.workload.result for call in network.calls] == [kinds[0], kinds[2]]
    values = run_fused(
        network,
        {"x": np.zeros(9, np.float32)},
        opaque=lambda _model, _inputs: [np.full(k.shape, i) for i, k in enumerate(kinds)],
    )
    assert values["c"].tolist() == [2, 2, 2, 2]
    assert parse_workload(network.calls[0].workload.text) == network.calls[0].workload


def test_requantizing_goes_along_with_a_sum_of_integers():
    builder = Builder()
    x = builder.input(1, 4, 6, 6, dtype="uint8")
    weight = builder.constant(builder.random.integers(-9, 9, (8, 4, 3, 3)).astype("int8"))
    sums = builder.add(
        "conv2d", x, weight, strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1
    )
    scaled = builder.add(
        "multiply", builder.add("cast", sums, dtype="float32"), builder.weight(8, 1, 1)
    )
    kept = builder.add("clip", builder.add("round", scaled), minimum=-128.0, maximum=127.0)
    result = builder.add("cast", kept, dtype="int8")
    (call,) = fuse(builder.graph(result)).calls
    assert [step.operator for step in call.workload.steps] == [
        "conv2d", "cast", "multiply", "round", "clip", "cast",
    ]  # fmt: skip
    assert str(call.workload.result) == "int8[1,8,4,4]"


def test_a_convolution_in_floats_may_end_in_bytes_only():
    for dtype, calls in (("int8", 1), ("int32", 2), ("float16", 2)):
        builder = Builder()
        conv = builder.conv(builder.input(1, 4, 6, 6), 8)
        assert len(fuse(builder.graph(builder.add("cast", conv, dtype=dtype))).calls) == calls
