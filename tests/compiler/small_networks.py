"""Compiling small graphs in this process and running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from graph_builder import Builder
from one_kernel import PLACEMENT

from tilewright.graph.arrange import Arrangement, arrange
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Array, Graph
from tilewright.graph.tasks import fused_network, task_key
from tilewright.kernels.blueprint import NetworkBlueprint, blueprint, packed_constant
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.spaces import default_candidate

if TYPE_CHECKING:
    from tilewright.compiler.execute import LoadedNetwork

__all__ = ["Builder", "check_network", "compiled", "compiled_outputs", "random_arrays"]


def compiled_outputs(
    graph: Graph, inputs: Mapping[str, Array], runs: int = 2
) -> tuple[Arrangement, list[list[Array]]]:
    """Clean, fuse, arrange, compile with default settings; the outputs of several runs."""
    plan, loaded = compiled(graph)
    network = plan.arrangement.network
    given = [inputs[name] for name in network.graph.inputs]
    return plan.arrangement, [loaded(given) for _ in range(runs)]


def compiled(graph: Graph) -> tuple[NetworkBlueprint, LoadedNetwork]:
    """Clean, fuse, arrange, compile with default settings, load."""
    import tvm

    from tilewright.compiler.execute import LoadedNetwork
    from tilewright.compiler.network import compile_network

    network = fused_network(graph)
    arrangement = arrange(network, choose_forms(network, PLACEMENT.target, PLACEMENT.resources))
    chosen = {
        task_key(c): default_candidate(c.call.workload, c.forms, PLACEMENT)[0]
        for c in arrangement.calls
    }
    plan = blueprint(arrangement, chosen)
    executable, _ = compile_network(plan, PLACEMENT.target, PLACEMENT.resources)
    weights = {
        stored.parameter.name: tvm.runtime.tensor(packed_constant(stored, network.graph.constants))
        for stored in plan.constants
    }
    order = [stored.parameter.name for stored in plan.constants]
    return plan, LoadedNetwork(executable.jit(), weights, order)


def check_network(graph: Graph, seed: int = 0) -> Arrangement:
    """The compiled network gives what numpy gives, run after run."""
    inputs = random_arrays(graph, seed)
    wanted = run_graph(graph, inputs)
    arrangement, runs = compiled_outputs(graph, inputs)
    for outputs in runs:
        assert len(outputs) == len(graph.outputs)
        for name, got in zip(graph.outputs, outputs, strict=True):
            expected = wanted[name]
            assert got.shape == expected.shape and got.dtype == expected.dtype
            scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * scale)
    return arrangement


def random_arrays(graph: Graph, seed: int) -> dict[str, Array]:
    from tilewright.graph.sample import random_inputs

    return random_inputs(graph, seed)
