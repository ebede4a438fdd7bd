"""From a MODEL argument to the tasks of its network."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core import errors, input_files, processes, records, units
from tilewright.graph import network, tasks
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.measure.kernels import WORKER
from tilewright.models import LoadedModel, ModelOptions, loading
from tilewright.models.loaded import PreparedNetwork

_TIMEOUT_S = 120.0


def prepare(argument: str, options: ModelOptions, placement: records.Placement) -> PreparedNetwork:
    """Load a model and cut it into tasks for a device."""
    return _cut(loading.load(argument, options), placement)


def prepare_outline(
    argument: str, options: ModelOptions, placement: records.Placement
) -> PreparedNetwork:
    """The same tasks where only they are asked for: a single operator is loaded as an outline."""
    return _cut(loading.load_outline(argument, options), placement)


def _cut(model: LoadedModel, placement: records.Placement) -> PreparedNetwork:
    fused = tasks.fused_network(model.graph)
    forms = choose_forms(fused, placement.target, placement.resources)
    plan = lay_out(fused, forms, lane_of(placement), default_settings(placement))
    require_memory(fused.graph, plan, input_files.machine_memory_bytes())
    require_supported(model.graph, placement)
    return PreparedNetwork(model=model, fused=fused, forms=forms, plan=plan)


def require_memory(graph: network.Graph, plan: NetworkPlan, limit_bytes: int) -> None:
    """Raise ModelError for a network whose tensors need more than `limit_bytes`, before any of
    them is made."""
    outside = dict.fromkeys((*graph.inputs, *graph.outputs, *graph.constants))
    needed_bytes = sum(graph.types[name].bytes for name in outside) + plan.arena_bytes
    if needed_bytes <= limit_bytes:
        return
    largest = max(graph.types, key=lambda name: graph.types[name].bytes)
    kind = graph.types[largest]
    raise errors.ModelError(
        f"the network needs {units.format_bytes(needed_bytes)} of memory, this machine has "
        f"{units.format_bytes(limit_bytes)}: tensor {largest!r}, {kind}, alone is "
        f"{units.format_bytes(kind.bytes)}",
        hint="Smaller inputs (--batch, --shape), or a machine with more memory.",
    )


def require_supported(graph: network.Graph, placement: records.Placement) -> None:
    """Raise ModelError for opaque nodes that TVM's importer does not take, before work begins."""
    if not any(node.operator == "opaque" for node in graph.nodes):
        return
    light = replace(graph, constants={})
    with processes.Child(WORKER, cpus=placement.binding.cpus) as child:
        try:
            child.request(("supported", light, placement.tvm_target), _TIMEOUT_S)
        except processes.RemoteError as error:
            if error.kind == "ModelError":
                raise errors.ModelError(error.message) from None
            raise
