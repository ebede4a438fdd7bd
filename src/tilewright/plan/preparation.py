"""From a MODEL argument to the tasks of its network."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.errors import ModelError
from tilewright.core.input_files import machine_memory_bytes
from tilewright.core.processes import Child, RemoteError
from tilewright.core.records import Placement
from tilewright.core.units import format_bytes
from tilewright.graph.network import Graph
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import fused_network
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.measure.kernels import WORKER
from tilewright.models import LoadedModel, ModelOptions
from tilewright.models.loading import load, load_outline
from tilewright.models.prepared import PreparedNetwork

_TIMEOUT_S = 120.0


def prepare(argument: str, options: ModelOptions, placement: Placement) -> PreparedNetwork:
    """Load a model and cut it into tasks for a device."""
    return _cut(load(argument, options), placement)


def prepare_outline(argument: str, options: ModelOptions, placement: Placement) -> PreparedNetwork:
    """The same tasks where only they are asked for: a single operator is loaded as an outline."""
    return _cut(load_outline(argument, options), placement)


def _cut(model: LoadedModel, placement: Placement) -> PreparedNetwork:
    fused = fused_network(model.graph)
    forms = choose_forms(fused, placement.target, placement.resources)
    plan = lay_out(fused, forms, lane_of(placement), default_settings(placement))
    require_memory(fused.graph, plan, machine_memory_bytes())
    require_supported(model.graph, placement)
    return PreparedNetwork(model=model, fused=fused, forms=forms, plan=plan)


def require_memory(graph: Graph, plan: NetworkPlan, limit_bytes: int) -> None:
    """Raise ModelError for a network whose tensors need more than `limit_bytes`, before any of
    them is made."""
    outside = dict.fromkeys((*graph.inputs, *graph.outputs, *graph.constants))
    needed_bytes = sum(graph.types[name].bytes for name in outside) + plan.arena_bytes
    if needed_bytes <= limit_bytes:
        return
    largest = max(graph.types, key=lambda name: graph.types[name].bytes)
    kind = graph.types[largest]
    raise ModelError(
        f"the network needs {format_bytes(needed_bytes)} of memory, this machine has "
        f"{format_bytes(limit_bytes)}: tensor {largest!r}, {kind}, alone is "
        f"{format_bytes(kind.bytes)}",
        hint="Smaller inputs (--batch, --shape), or a machine with more memory.",
    )


def require_supported(graph: Graph, placement: Placement) -> None:
    """Raise ModelError for opaque nodes that TVM's importer does not take, before work begins."""
    if not any(node.operator == "opaque" for node in graph.nodes):
        return
    light = replace(graph, constants={})
    with Child(WORKER, cpus=placement.binding.cpus) as child:
        try:
            child.request(("supported", light, placement.tvm_target), _TIMEOUT_S)
        except RemoteError as error:
            if error.kind == "ModelError":
                raise ModelError(error.message) from None
            raise
