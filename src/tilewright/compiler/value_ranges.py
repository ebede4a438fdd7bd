"""How large the numbers of a network are, tensor by tensor, on given inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.compiler.rounding_noise import Runner
from tilewright.graph.arrays import rounded_to
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array

Ranges = dict[str, tuple[float, float]]


def value_ranges(
    network: FusedNetwork, inputs: Sequence[Mapping[str, Array]], dtype: str
) -> Ranges:
    """Of every tensor in single precision the largest size of its finite numbers, and what rounding
    to `dtype` adds to it, root mean square relative to its own; the worst of several inputs."""
    runner, found = Runner(network.graph.types), Ranges()
    for given in inputs:
        values = dict(network.graph.constants) | {
            name: given[name] for name in network.graph.inputs
        }
        for call in network.calls:
            values[call.output] = runner.run(call, values)
        for name, value in values.items():
            if value.dtype == np.float32:
                seen = found.get(name, (0.0, 0.0))
                now = _range(value, dtype)
                found[name] = (max(seen[0], now[0]), max(seen[1], now[1]))
    return found


def _range(value: Array, dtype: str) -> tuple[float, float]:
    finite = value[np.isfinite(value)]
    power = float(np.sum(np.square(finite, dtype=np.float64)))
    error = finite.astype(np.float64) - rounded_to(finite, dtype)
    noise = float(np.sum(np.square(error)))
    return float(np.abs(finite).max(initial=0.0)), (noise / power) ** 0.5 if power else 0.0
