"""Noise cause by cause, as ONNX Runtime shows it, against numpy on the whole network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.kernels.one_kernel import step, workload
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder, random_inputs
from tilewright.compiler.finer_noise import finer_noise
from tilewright.compiler.rounding_noise import disturbable, rounding_noise
from tilewright.core.noise import FinerCauses
from tilewright.graph.arrays import rounded_to
from tilewright.graph.evaluate import run_workload
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array, TensorType
from tilewright.kernels.half_noise import Rounds
from tilewright.kernels.registry import implementation

HALF = "bfloat16"


def network() -> FusedNetwork:
    """Two convolutions, a remainder, which numpy computes, and a dense layer; two outputs."""
    b = Builder()
    x = b.input(1, 4, 8, 8)
    one = b.add("relu", b.conv(x, 8))
    two = b.conv(one, 8)
    odd = b.add("modulo", two, b.constant(np.float32(3.0)))
    mean = b.add("reduce_mean", odd, axes=(2, 3), keepdims=False)
    return fused(b, b.add("dense", mean, b.weight(8, 3)), b.add("tanh", one))


def outputs(
    net: FusedNetwork, inputs: dict[str, Array], tensor: str = "", call: str = "", place: int = 0
) -> list[Array]:
    """The outputs in numpy, a tensor or one argument of a call rounded."""
    values: dict[str, Array] = {**net.graph.constants, **inputs}
    if tensor in values:
        values[tensor] = rounded_to(values[tensor], HALF)
    for each in net.calls:
        read = [values[name] for name in each.inputs]
        if each.name == call:
            read[place] = rounded_to(read[place], HALF)
        values[each.output] = run_workload(each.workload, read)
        if each.output == tensor:
            values[tensor] = rounded_to(values[tensor], HALF)
    return [values[name].astype(np.float64) for name in net.graph.outputs]


def test_each_cause_is_what_numpy_makes_of_it() -> None:
    net = network()
    inputs = [random_inputs(net.graph, seed) for seed in (1, 2)]
    tensors = [net.graph.inputs[0], *(call.output for call in net.calls[:-1])]
    factors = {
        call.name: 1 for call in net.calls if call.workload.anchor_name in ("conv2d", "dense")
    }
    assert len(factors) == 3
    found = rounding_noise(net, inputs, tensors, factors, {}, HALF)
    right = [outputs(net, each) for each in inputs]
    for number, name in enumerate(net.graph.outputs):
        assert found.outputs[number] == name
        signal = sum(float(np.sum(run[number] ** 2)) for run in right)
        assert found.signals[number] == pytest.approx(signal, rel=1e-4)
        assert found.elements[number] == sum(run[number].size for run in right)

    def noise(**cause: str | int) -> list[float]:
        runs = [outputs(net, each, **cause) for each in inputs]  # type: ignore[arg-type]
        return [
            sum(float(np.sum((a[n] - b[n]) ** 2)) for a, b in zip(runs, right, strict=True))
            for n in range(len(net.graph.outputs))
        ]

    for tensor in tensors:
        assert found.tensors[tensor] == pytest.approx(noise(tensor=tensor), rel=0.05, abs=1e-9)
    for call, place in factors.items():
        assert found.calls[call] == pytest.approx(noise(call=call, place=place), rel=0.05, abs=1e-9)


def test_an_algorithm_makes_the_noise_of_its_own_errors() -> None:
    """Two calls behind it; its anchor is followed by a bias and a rectifier."""
    b = Builder()
    x = b.input(1, 32, 8, 8)
    one = b.add("relu", b.add("add", b.conv(x, 32), b.weight(32, 1, 1)))
    net = fused(b, b.add("reduce_mean", b.conv(one, 16), axes=(2, 3), keepdims=False))
    call, name = net.calls[0], "conv2d_winograd_bfloat16"
    given = random_inputs(net.graph, 3)
    found = rounding_noise(net, [given], [], {call.name: 1}, {call.name: [name]}, HALF)

    spec = implementation(name)
    assert isinstance(spec, Rounds) and len(call.workload.steps) == 3
    values: dict[str, Array] = {**net.graph.constants, **given}
    data, weights, bias = (values[tensor] for tensor in call.inputs)
    errors = spec.rounding_errors(call.workload, [rounded_to(data, HALF), weights])
    right = run_workload(
        replace(call.workload, steps=call.workload.steps[:1]), [data, weights, bias]
    )
    runs: list[Array] = []
    for result in (right, right + errors):
        values[call.output] = np.maximum(result + bias, 0)
        for each in net.calls[1:]:
            values[each.output] = run_workload(each.workload, [values[n] for n in each.inputs])
        runs.append(values[net.graph.outputs[0]].astype(np.float64))
    assert found.algorithms == {
        (call.name, name): pytest.approx((np.sum((runs[1] - runs[0]) ** 2),), rel=0.01)
    }
    assert found.algorithms[call.name, name] != pytest.approx(found.calls[call.name], rel=0.1)


def test_errors_are_added_behind_the_anchor_wherever_it_stands() -> None:
    kinds = [TensorType((6, 5), "float32"), TensorType((5, 4), "float32")]
    task = workload(kinds, step("tanh", 0), step("dense", 2, 1), step("relu", 3))
    changed = disturbable(task)
    rng = np.random.default_rng(0)
    *given, errors = (rng.standard_normal(a.type.shape, np.float32) for a in changed.arguments)
    right = np.maximum(np.tanh(given[0]) @ given[1] + errors, 0)
    np.testing.assert_allclose(run_workload(changed, [*given, errors]), right, rtol=1e-5, atol=1e-6)


def test_a_finer_type_makes_what_one_more_run_through_the_network_tells() -> None:
    """Against rounding each tensor to float16 and computing what follows."""
    b = Builder()
    one = b.add("relu", b.conv(b.input(1, 8, 16, 16), 32))
    rows = b.add("reshape", b.conv(one, 32), shape=(32, 256))
    net = fused(b, b.add("dense", rows, b.weight(256, 20)), b.add("tanh", one))
    given = [random_inputs(net.graph, seed) for seed in (1, 2)]
    tensors = [net.graph.inputs[0], *(call.output for call in net.calls[:-1])]
    factors = {c.name: 1 for c in net.calls if c.workload.anchor_name in ("conv2d", "dense")}
    assert len(factors) == 3
    second = net.calls[1].name
    names = [f"conv2d_winograd_{half}" for half in (HALF, "float16")]
    coarse, right = (
        rounding_noise(net, given, tensors, factors, {second: [name]}, half)
        for name, half in zip(names, (HALF, "float16"), strict=True)
    )
    alike = {second: [(names[0], names[1]), ("", names[1].replace("winograd", "winograd2"))]}
    causes = FinerCauses(types=(HALF, "float16"), factors=factors, adders={}, alike=alike)
    found = finer_noise(net, given, coarse, causes)
    for name in tensors:
        assert found.tensors[name] == pytest.approx(right.tensors[name], rel=0.25, abs=1e-12)
    for name in factors:
        assert found.calls[name] == pytest.approx(right.calls[name], rel=0.25)
    (algorithm,) = right.algorithms
    assert found.algorithms[algorithm] == pytest.approx(right.algorithms[algorithm], rel=0.25)
    alone = found.algorithms[second, alike[second][1][1]]
    assert 0.02 < alone[0] / right.algorithms[algorithm][0] < 0.5, "tiles of 2×2 make less"


def test_what_is_finite_stays_finite() -> None:
    lowest = np.finfo(np.float32).min
    left = rounded_to(np.array([lowest, -lowest, np.inf, -np.inf, 1.0], np.float32), HALF)
    assert np.isfinite(left[[0, 1, 4]]).all() and np.isinf(left[2:4]).all()
