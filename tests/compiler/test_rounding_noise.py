"""Noise cause by cause, as ONNX Runtime shows it, against numpy on the whole network."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder, random_inputs
from tilewright.compiler.rounding_noise import rounded, rounding_noise
from tilewright.graph.evaluate import run_workload
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array

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
        values[tensor] = rounded(values[tensor], HALF)
    for each in net.calls:
        read = [values[name] for name in each.inputs]
        if each.name == call:
            read[place] = rounded(read[place], HALF)
        values[each.output] = run_workload(each.workload, read)
        if each.output == tensor:
            values[tensor] = rounded(values[tensor], HALF)
    return [values[name].astype(np.float64) for name in net.graph.outputs]


def test_each_cause_is_what_numpy_makes_of_it() -> None:
    net = network()
    inputs = [random_inputs(net.graph, seed) for seed in (1, 2)]
    tensors = [net.graph.inputs[0], *(call.output for call in net.calls[:-1])]
    factors = {
        call.name: 1 for call in net.calls if call.workload.anchor_name in ("conv2d", "dense")
    }
    assert len(factors) == 3
    found = rounding_noise(net, inputs, tensors, factors, HALF)
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


def test_what_is_finite_stays_finite() -> None:
    lowest = np.finfo(np.float32).min
    left = rounded(np.array([lowest, -lowest, np.inf, -np.inf, 1.0], np.float32), HALF)
    assert np.isfinite(left[[0, 1, 4]]).all() and np.isinf(left[2:4]).all()
