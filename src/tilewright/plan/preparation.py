"""From a MODEL argument to the tasks of its network."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.errors import ModelError
from tilewright.core.input_files import machine_memory_bytes
from tilewright.core.processes import Child, RemoteError
from tilewright.core.records import Placement
from tilewright.core.units import format_bytes
from tilewright.graph.arrange import Arrangement, arrange
from tilewright.graph.network import Graph
from tilewright.graph.tasks import fused_network, tasks_of
from tilewright.kernels.forms import choose_forms
from tilewright.measure.kernels import WORKER
from tilewright.models import LoadedModel, ModelOptions, load, sketch
from tilewright.models.prepared import PreparedNetwork

_TIMEOUT_S = 120.0


def prepare(argument: str, options: ModelOptions, placement: Placement) -> PreparedNetwork:
    """Load a model and cut it into tasks for a device."""
    return _cut(load(argument, options), placement)


def prepare_sketch(argument: str, options: ModelOptions, placement: Placement) -> PreparedNetwork:
    """The same tasks where only they are asked for: a single operator is only sketched."""
    return _cut(sketch(argument, options), placement)


def _cut(model: LoadedModel, placement: Placement) -> PreparedNetwork:
    network = fused_network(model.graph)
    arrangement = arrange(network, choose_forms(network, placement.target, placement.resources))
    require_memory(arrangement, machine_memory_bytes())
    require_supported(model.graph, placement)
    return PreparedNetwork(
        model=model, key=network.key, arrangement=arrangement, tasks=tasks_of(arrangement)
    )


def require_memory(arrangement: Arrangement, limit_bytes: int) -> None:
    """Raise ModelError for a network whose tensors need more than `limit_bytes`, before any of
    them is made."""
    graph = arrangement.network.graph
    outside = dict.fromkeys((*graph.inputs, *graph.outputs, *graph.constants))
    needed_bytes = sum(graph.types[name].bytes for name in outside)
    needed_bytes += arrangement.memory.arena_bytes
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
            child.request(("supported", light, placement), _TIMEOUT_S)
        except RemoteError as error:
            if error.kind == "ModelError":
                raise ModelError(error.message) from None
            raise
