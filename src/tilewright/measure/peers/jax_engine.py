"""The child process in which JAX runs our graph of a model on a GPU, compiled by XLA as a whole.

JAX gives no events. A sample is the time of several runs, which are asked for one behind the other
and waited for once, divided by their number: XLA launches a run while the one before it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from tilewright.core.child import wait_until_asleep
from tilewright.measure.peers.engine import Arrays, Engine
from tilewright.measure.peers.jax_operators import jax, jax_call
from tilewright.models.loading import load

_SAMPLE_S, _MOST_RUNS = 0.01, 100
_OLDEST_WITH_TF32 = 8.0


class NoGpu(Exception):
    """JAX cannot compute on a GPU here; the message says why."""


class JaxEngine(Engine):
    """One graph, compiled for the shapes it has; weights are arguments that lie on the GPU."""

    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Compile; in fp32 products are of the highest precision, else JAX's own choice. Raises
        `NoGpu`."""
        device = gpu()
        jax.config.update("jax_enable_x64", True)
        if precision == "fp32":
            jax.config.update("jax_default_matmul_precision", "highest")
        self._graph = load(model_path).graph
        self._calls = [
            (jax_call(node.operator, dict(node.attributes)), node.inputs, node.output)
            for node in self._graph.nodes
        ]
        self._weights = jax.device_put(dict(self._graph.constants))
        self._compiled = jax.jit(self._traced)
        able = float(device.compute_capability) >= _OLDEST_WITH_TF32
        return "tf32" if able and precision != "fp32" else "fp32"

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        given = jax.device_put({name: inputs[name] for name in self._graph.inputs})
        jax.block_until_ready(given)
        return lambda: self._compiled(self._weights, given)

    def outputs(self, result: Any) -> Arrays:
        return {n: np.asarray(it) for n, it in zip(self._graph.outputs, result, strict=True)}

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds of a run, each the mean of as many as take ten milliseconds."""
        call = self.bind(inputs)
        for _ in range(warmup):
            _mean_s(call, 1)
        runs = max(1, min(_MOST_RUNS, ceil(_SAMPLE_S / max(_mean_s(call, 1), 1e-6))))
        samples_s = [_mean_s(call, runs) for _ in range(repeats)]
        wait_until_asleep()
        return samples_s

    def _traced(self, weights: Any, given: Any) -> tuple[Any, ...]:
        values = {**weights, **given}
        for call, names, output in self._calls:
            values[output] = call(*(values[name] for name in names))
        return tuple(values[name] for name in self._graph.outputs)


def gpu() -> Any:
    """JAX's first device. Raises `NoGpu` where it is none of NVIDIA's."""
    device = jax.devices()[0]
    if device.platform != "gpu":
        raise NoGpu(
            f"JAX {jax.__version__} finds no GPU that it can use; for those of NVIDIA's it is "
            "installed as jax[cuda13]"
        )
    return device


def _mean_s(call: Callable[[], Any], runs: int) -> float:
    before_s = perf_counter()
    results = [call() for _ in range(runs)]
    jax.block_until_ready(results)
    return (perf_counter() - before_s) / runs


if __name__ == "__main__":
    JaxEngine().serve()
