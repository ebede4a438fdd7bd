"""Small networks from our graph to a compiled one, in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.support.cc import create_shared

from helpers.networks.small_networks import (
    Builder,
    built,
    check_network,
    compiled,
    compiled_outputs,
    random_arrays,
)
from tilewright.core.errors import LinkError
from tilewright.graph.network import Graph
from tilewright.measure.network_worker import linked


class Linked:
    """What a compiled module does to become a library, without a module."""

    def export_library(self, path: str) -> None:
        create_shared(path, ["nothing.o"])


@pytest.mark.parametrize("compiler", ["false", "/nowhere/g++"])
def test_a_compiler_that_does_not_link_is_told_from_other_errors(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", compiler)
    path = tmp_path / "model.so"
    with pytest.raises(LinkError, match=compiler):
        linked(lambda: Linked().export_library(str(path)), path)


def test_concatenations_in_place():
    b = Builder()
    current = b.conv(b.input(1, 3, 8, 8), 16)
    for _ in range(3):
        new = b.conv(b.add("relu", current), 8)
        current = b.add("concat", current, new, axis=1)
    plan = check_network(b.graph(b.conv(current, 4, 1)))
    assert not any(call.workload.anchor_name == "concat" for call in plan.calls)


def test_a_result_does_not_lie_where_a_view_of_the_same_call_does():
    b = Builder()
    x = b.conv(b.input(1, 3, 8, 8), 32)
    part = b.add("slice", x, starts=(0, 0, 0, 0), stops=(1, 16, 8, 8), steps=(1,) * 4)
    y = b.add("relu", b.add("add", b.conv(part, 32, 1), x))
    plan = check_network(b.graph(b.conv(y, 32, 1)))
    assert any({x, part} <= {*call.inputs} and call.overwritable for call in plan.calls)


def test_a_concatenation_with_an_input_a_constant_and_one_tensor_twice():
    b = Builder()
    x = b.input(1, 8, 4, 4)
    made = b.conv(x, 8)
    both = b.add("concat", x, made, b.weight(1, 8, 4, 4), made, axis=1)
    check_network(b.graph(b.conv(both, 8), b.add("relu", both)))


def test_shared_weights():
    b = Builder()
    x, y = b.input(1, 8, 6, 6), b.input(1, 8, 6, 6)
    weight = b.weight(8, 8, 3, 3)
    named = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    first = b.add("conv2d", x, weight, **named)
    second = b.add("conv2d", y, weight, **named)
    third = b.add("conv2d", b.add("relu", first), weight, **named)
    check_network(b.graph(second, third))


def test_several_inputs_and_outputs_one_of_them_used_inside():
    b = Builder()
    x, y = b.input(1, 8, 5, 5), b.input(1, 8, 5, 5)
    shown = b.add("relu", b.conv(x, 8))
    joined = b.add("add", shown, y)
    check_network(b.graph(b.conv(joined, 4), shown, b.add("reshape", shown, shape=(8, 25))))


def test_an_input_that_is_an_output():
    b = Builder()
    x, y = b.input(2, 3), b.input(4)
    check_network(b.graph(y, b.add("tanh", x), x))


def test_the_same_output_under_two_names():
    b = Builder()
    x = b.input(2, 3)
    y = b.add("tanh", x)
    check_network(b.graph(y, b.add("identity", y), b.add("identity", x)))


def test_constants_as_outputs():
    b = Builder()
    x = b.input(2, 3)
    constant = b.weight(4, 5)
    folded = b.add("relu", b.add("reshape", constant, shape=(20,)))
    check_network(b.graph(b.add("relu", x), constant, folded))


def test_an_unused_input():
    b = Builder()
    x, _ = b.input(2, 3), b.input(7)
    check_network(b.graph(b.add("relu", x)))


def test_integers_that_choose_rows():
    b = Builder()
    ids = b.input(2, 5, dtype="int64")
    rows = b.add("gather", b.weight(11, 8), ids, axis=0)
    mixed = b.add("dense", b.add("reshape", rows, shape=(10, 8)), b.weight(8, 6))
    check_network(b.graph(b.add("softmax", mixed, axis=1), b.add("cast", ids, dtype="float32")))


def test_rows_are_chosen_from_what_a_reshape_gives():
    b = Builder()
    order = np.random.default_rng(0).permutation(48).reshape(1, 48, 1, 1)
    flat = b.add("reshape", b.input(1, 12, 2, 2), shape=(48,))
    chosen = b.add("gather", flat, b.constant(order), axis=0)
    check_network(b.graph(b.add("reshape", chosen, shape=(1, 2, 2, 12))))


def test_booleans_as_outputs_and_inputs():
    b = Builder()
    x, flags = b.input(3, 4), b.input(3, 4, dtype="bool")
    larger = b.add("greater", x, b.constant(np.float32(0.1)))
    check_network(b.graph(larger, b.add("where", flags, x, b.constant(np.float32(-1.0)))))


@pytest.mark.parametrize("shape", [(1, 16, 6, 6), (16, 1, 1), (), (1,)])
def test_constants_beside_collapsed_rows(shape: tuple[int, ...]):
    b = Builder()
    y = b.add("add", b.conv(b.input(1, 8, 6, 6), 16, 1), b.weight(*shape))
    check_network(b.graph(b.conv(b.add("relu", y), 8)))


def test_scalars():
    b = Builder()
    x, factor = b.input(3, 4), b.input()
    total = b.add("reduce_sum", b.add("multiply", x, factor), axes=(0, 1), keepdims=False)
    check_network(b.graph(total, b.add("tanh", factor)))


def test_a_residual_block_with_pooling_and_a_head():
    b = Builder()
    pool = {"kernel": (3, 3), "strides": (2, 2), "padding": (1,) * 4, "dilation": (1, 1)}
    x = b.add("max_pool2d", b.conv(b.input(2, 3, 17, 17), 16, 7, strides=(2, 2)), **pool)
    inner = b.add("relu", b.conv(x, 16))
    y = b.add("relu", b.add("add", b.conv(inner, 16), x))
    flat = b.add("reshape", b.add("reduce_mean", y, axes=(2, 3), keepdims=True), shape=(2, 16))
    dense = b.add("add", b.add("dense", flat, b.weight(16, 10)), b.weight(10))
    check_network(b.graph(b.add("softmax", dense, axis=1)))


def test_outputs_outlive_the_next_run():
    b = Builder()
    x = b.input(1, 8, 4, 4)
    graph: Graph = b.graph(b.conv(x, 8))
    rng = np.random.default_rng(0)
    inputs = {x: rng.standard_normal((1, 8, 4, 4), dtype=np.float32)}
    _, (first, second) = compiled_outputs(graph, inputs)
    kept = first[0].copy()
    assert first[0] is not second[0]
    second[0][:] = 0
    np.testing.assert_array_equal(first[0], kept)


def test_views_into_a_shared_buffer():
    b = Builder()
    x = b.input(1, 16, 4, 4)
    left, right = b.conv(x, 16), b.conv(x, 16)
    both = b.add("concat", left, right, axis=1)
    soft = b.add("softmax", b.add("reshape", right, shape=(16, 16)), axis=1)
    check_network(b.graph(b.conv(both, 8), soft))


def test_every_kernel_is_timed_in_its_place():
    b = Builder()
    x = b.input(1, 16, 12, 12)
    current = b.conv(b.conv(x, 32), 32)
    graph = b.graph(b.conv(b.add("relu", b.conv(current, 32)), 8, 1))
    plan, loaded = compiled(graph)
    arrays = random_arrays(graph, 0)
    given = [arrays[name] for name in plan.inputs]
    before = loaded(given)
    calls = loaded.time_calls(given, repeats=3)
    kernels = [(symbol, seconds) for symbol, seconds in calls if symbol in plan.symbols.values()]
    assert [symbol for symbol, _ in kernels] == [plan.symbol(call) for call in plan.calls]
    assert all(seconds > 0 for _, seconds in kernels)
    wanted, begun = iter([True, True, False]), list[bool]()
    bursts = loaded.keep_running(given, lambda: next(wanted), lambda: begun.append(True))
    assert begun == [True] and [burst.calls for burst in bursts] == [1, 1]
    assert all(burst.busy_s == burst.end_s - burst.begin_s > 0.0 for burst in bursts)
    for first, again in zip(before, loaded(given), strict=True):
        np.testing.assert_array_equal(first, again)


def test_an_output_that_lies_in_an_input_is_written_there():
    b = Builder()
    cache = b.input(1, 8, 4, 4)
    plan, _ = compiled(b.graph(b.add("relu", cache)))
    (kept,) = plan.outputs
    lying = replace(plan.tensors[kept], root=cache)
    shared = replace(plan, tensors={**plan.tensors, kept: lying})
    loaded = built(shared, {})
    values = np.random.default_rng(0).standard_normal((1, 8, 4, 4), dtype=np.float32)
    given = tvm.runtime.tensor(values)
    loaded._run([given])
    np.testing.assert_array_equal(given.numpy(), np.maximum(values, 0))
