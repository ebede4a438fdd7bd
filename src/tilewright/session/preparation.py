"""From a MODEL argument to the tasks of its network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.core.errors import ModelError
from tilewright.core.forms import Form
from tilewright.core.input_files import machine_memory_bytes
from tilewright.core.processes import Child, RemoteError
from tilewright.core.records import LayoutPlan, Placement
from tilewright.core.units import format_bytes
from tilewright.graph.arrange import Arrangement, arrange
from tilewright.graph.clean import clean
from tilewright.graph.collapse import collapse_rows
from tilewright.graph.conversions import with_conversions
from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork
from tilewright.graph.network import Graph
from tilewright.graph.workload import Workload
from tilewright.kernels.blueprint import TaskKey, task_key
from tilewright.kernels.forms import choose_forms
from tilewright.measure.kernels import WORKER
from tilewright.models import LoadedModel, ModelOptions, load, sketch

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A kernel the network needs: calls with equal workload and layouts share it."""

    key: TaskKey
    name: str
    workload: Workload
    forms: tuple[Form, ...]
    count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNetwork:
    """A model, its kernel calls, and its distinct tasks in order of first use.

    `key` identifies the fused network whatever its layouts; `plan` says where those are not the
    default ones.
    """

    model: LoadedModel
    key: str
    arrangement: Arrangement
    tasks: Mapping[TaskKey, Task]
    plan: LayoutPlan = LayoutPlan()

    @property
    def graph(self) -> Graph:
        """The graph whose tensors the calls name."""
        return self.arrangement.network.graph


def fused_network(graph: Graph) -> FusedNetwork:
    """Clean, fuse, and collapse the rows of pointwise convolutions."""
    network = fuse(clean(graph))
    calls = tuple(replace(call, workload=collapse_rows(call.workload)) for call in network.calls)
    return FusedNetwork(graph=network.graph, calls=calls)


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


def laid_out(network: PreparedNetwork, plan: LayoutPlan) -> PreparedNetwork:
    """A network that has the default layouts, in those of a plan."""
    if plan == LayoutPlan():
        return network
    usual = network.arrangement
    forms = {**usual.forms, **plan.forms}
    arrangement = arrange(*with_conversions(usual.network, forms, plan.ports))
    return replace(network, arrangement=arrangement, tasks=tasks_of(arrangement), plan=plan)


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


def tasks_of(arrangement: Arrangement) -> dict[TaskKey, Task]:
    """The distinct tasks, in order of first use."""
    tasks: dict[TaskKey, Task] = {}
    for item in arrangement.calls:
        key = task_key(item)
        known = tasks.get(key)
        if known is None:
            tasks[key] = Task(
                key=key,
                name=item.call.name,
                workload=item.call.workload,
                forms=item.forms,
                count=1,
                nodes=item.call.nodes,
            )
        else:
            tasks[key] = replace(
                known, count=known.count + 1, nodes=(*known.nodes, *item.call.nodes)
            )
    return tasks
