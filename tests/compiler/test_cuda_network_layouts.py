"""Networks whose images have their channels last, on a simulated GPU, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from helpers.networks.cuda_networks import PLACEMENT, check_outputs, compiled
from helpers.networks.graph_builder import Builder
from helpers.networks.random_graphs import POOL
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.core.forms import CHANNELS_LAST
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Graph, TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda.images import image_forms
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import packed_constant
from tilewright.kernels.ports import Ports
from tilewright.plan.network_problem import NetworkProblem, Time
from tilewright.plan.planners import plan_with
from tilewright.search.layout_costs import LayoutCosts
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import SimulatedDriver

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)


@dataclass(frozen=True)
class RowsAreDear:
    """The facts' estimates, ten times as much for each image that lies row by row."""

    costs: LayoutCosts

    def kernels(self, workload: Workload, ports: Ports) -> Mapping[str, Time]:
        kinds = [*(argument.type for argument in workload.arguments), workload.result]
        pairs = zip(kinds, ports, strict=True)
        rows = sum(form != CHANNELS_LAST and len(image_forms(kind)) > 1 for kind, form in pairs)
        found = self.costs.kernels(workload, ports)
        return {n: replace(time, seconds=time.seconds * 10**rows) for n, time in found.items()}

    def rounding(self, workload: Workload, ports: Ports) -> Mapping[str, Time]:
        return self.costs.rounding(workload, ports)

    def change(self, kind: TensorType, source: object, target: object) -> Time:
        return self.costs.change(kind, source, target)  # type: ignore[arg-type]

    def candidate(self, workload: Workload, ports: Ports, implementation: str | None) -> Candidate:
        return self.costs.candidate(workload, ports, implementation)


def residual() -> Graph:
    """Convolutions with a residual between them, pooling, a mean of each channel."""
    b = Builder()
    x = b.add("relu", b.conv(b.input(1, 3, 12, 12), 8, 5, strides=(2, 2)))
    x = b.add("max_pool2d", x, **POOL)
    y = b.add("relu", b.conv(x, 8))
    x = b.add("relu", b.add("add", b.conv(y, 8), x))
    pooled = b.add("reduce_mean", x, axes=(2, 3), keepdims=False)
    return b.graph(b.add("dense", pooled, b.weight(8, 5)))


def mobile() -> Graph:
    """A depthwise convolution with a gate of each channel between pointwise ones."""
    b = Builder()
    x = b.add("relu", b.conv(b.input(1, 6, 8, 8), 12, 1))
    x = b.add("relu", b.conv(x, 12, 3, groups=12))
    squeezed = b.add("reduce_mean", x, axes=(2, 3), keepdims=True)
    x = b.add("multiply", x, b.add("sigmoid", b.conv(squeezed, 12, 1)))
    return b.graph(b.conv(x, 6, 1))


def joined() -> Graph:
    """Two branches that are joined along their channels, and padded."""
    b = Builder()
    x = b.input(1, 4, 7, 7)
    both = b.add("concat", b.add("relu", b.conv(x, 4)), b.add("tanh", b.conv(x, 3, 1)), axis=1)
    sides = {"before": (0, 0, 1, 0), "after": (0, 0, 0, 1), "mode": "constant", "value": 0.0}
    return b.graph(b.conv(b.add("pad", both, **sides), 5))


def with_channels_last(graph: Graph) -> NetworkPlan:
    """The plan of a graph where images that lie row by row are dear."""
    network = fused_network(graph)
    problem = NetworkProblem(
        network=network,
        usual=choose_forms(network, PLACEMENT.target, PLACEMENT.resources),
        placement=PLACEMENT,
        times=RowsAreDear(LayoutCosts(placement=PLACEMENT)),
    )
    return plan_with("auto", problem, "last").plan


@pytest.mark.parametrize("build", [residual, mobile, joined])
def test_networks_with_channels_last(build: Callable[[], Graph]) -> None:
    """Every image within is read and written so, and the numbers are numpy's."""
    graph = build()
    plan, outside = with_channels_last(graph), {*graph.inputs, *graph.outputs}
    within = {
        name: tensor
        for name, tensor in plan.tensors.items()
        if name not in outside and len(image_forms(tensor.type)) > 1
    }
    assert within
    assert {tensor.form for tensor in within.values()} == {CHANNELS_LAST}
    known = fused_network(graph).graph.constants
    weights = {stored.name: packed_constant(stored, known) for stored in plan.constants}
    loaded = LoadedCudaNetwork(compiled(plan), weights, SimulatedDriver(seed=1))
    inputs = random_inputs(graph, 0)
    outputs = loaded([inputs[name] for name in graph.inputs])
    check_outputs(graph, outputs, run_graph(graph, inputs))
