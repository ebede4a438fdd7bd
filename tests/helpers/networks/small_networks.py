"""Compiling small graphs in this process and running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.kernels.one_kernel import PLACEMENT
from helpers.networks.graph_builder import Builder
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Array, Graph
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import fused_network
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out, packed_constant

if TYPE_CHECKING:
    from tilewright.compiler.execute import LoadedNetwork

__all__ = ["Builder", "built", "check_network", "compiled", "compiled_outputs", "random_arrays"]


def compiled_outputs(
    graph: Graph, inputs: Mapping[str, Array], runs: int = 2
) -> tuple[NetworkPlan, list[list[Array]]]:
    """Clean, fuse, arrange, compile with default settings; the outputs of several runs."""
    plan, loaded = compiled(graph)
    given = [inputs[name] for name in plan.inputs]
    return plan, [loaded(given) for _ in range(runs)]


def compiled(graph: Graph) -> tuple[NetworkPlan, LoadedNetwork]:
    """Clean, fuse, arrange, compile with default settings, load."""
    network = fused_network(graph)
    forms = choose_forms(network, PLACEMENT.target, PLACEMENT.resources)
    plan = lay_out(network, forms, lane_of(PLACEMENT), default_settings(PLACEMENT))
    return plan, built(plan, network.graph.constants)


def built(plan: NetworkPlan, constants: Mapping[str, Array]) -> LoadedNetwork:
    """A plan compiled and loaded, with values for the graph's constants."""
    import tvm

    from tilewright.compiler.execute import LoadedNetwork
    from tilewright.compiler.network import compile_network

    executable, _ = compile_network(plan, PLACEMENT.target)
    weights = {
        stored.name: tvm.runtime.tensor(packed_constant(stored, constants))
        for stored in plan.constants
    }
    return LoadedNetwork(executable.jit(), weights, plan.constant_names)


def check_network(graph: Graph, seed: int = 0) -> NetworkPlan:
    """The compiled network gives what numpy gives, run after run."""
    inputs = random_arrays(graph, seed)
    wanted = run_graph(graph, inputs)
    plan, runs = compiled_outputs(graph, inputs)
    for outputs in runs:
        assert len(outputs) == len(graph.outputs)
        for name, got in zip(graph.outputs, outputs, strict=True):
            expected = wanted[name]
            assert got.shape == expected.shape and got.dtype == expected.dtype
            scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * scale)
    return plan


def random_arrays(graph: Graph, seed: int) -> dict[str, Array]:
    from tilewright.graph.inputs import random_inputs

    return random_inputs(graph, seed)
