"""Small graphs as networks on a simulated GPU, in this process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from helpers.plugins.simulated_gpu import h100
from helpers.processes.simulated_gpu_networks import not_compiled
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.compiler.cuda.network import CudaNetwork
from tilewright.compiler.cuda_network import network_of
from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array, Graph
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Workload
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import Choose, default_settings, lay_out, packed_constant
from tilewright.testing.simulated_driver import SimulatedDriver

PLACEMENT = h100()


def by_tvm(_workload: Workload, forms: tuple[Form, ...]) -> Candidate:
    """TVM's own schedule, in which some tasks are several kernels."""
    return Candidate(implementation="cuda_default", settings=(), forms=forms)


def planned(graph: Graph, choose: Choose | None = None) -> tuple[NetworkPlan, dict[str, Array]]:
    """The plan of a graph, in default settings unless others are chosen, and its packed
    constants."""
    network = fused_network(graph)
    forms = choose_forms(network, PLACEMENT.target, PLACEMENT.resources)
    chosen = choose or default_settings(PLACEMENT)
    plan = lay_out(network, forms, lane_of(PLACEMENT), chosen)
    known = network.graph.constants
    return plan, {stored.name: packed_constant(stored, known) for stored in plan.constants}


def compiled(plan: NetworkPlan) -> CudaNetwork:
    """Its network, not compiled for a GPU."""
    return network_of(plan, PLACEMENT.target, not_compiled)


def loaded(graph: Graph, seed: int = 0) -> LoadedCudaNetwork:
    """The network of a graph, on a simulated GPU that executes in the order of a seed."""
    plan, weights = planned(graph)
    return LoadedCudaNetwork(compiled(plan), weights, SimulatedDriver(seed=seed))


def check_cuda_network(graph: Graph, seed: int = 0) -> None:
    """Executed twice on different inputs, it gives what numpy gives."""
    network = loaded(graph, seed)
    for draw in range(2):
        inputs = random_inputs(graph, draw)
        outputs = network([inputs[name] for name in graph.inputs])
        check_outputs(graph, outputs, run_graph(graph, inputs))


def check_outputs(graph: Graph, outputs: list[Array], expected: Mapping[str, Array]) -> None:
    """Outputs in order are close to those by name."""
    for name, found in zip(graph.outputs, outputs, strict=True):
        wanted = expected[name]
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        scale = max(1.0, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * scale)
