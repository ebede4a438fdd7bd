"""The tasks of a network: what is tuned, and how often the network calls it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.core.forms import Form
from tilewright.graph.arrange import Arrangement, KernelCall
from tilewright.graph.clean import clean
from tilewright.graph.collapse import collapse_rows
from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork
from tilewright.graph.network import Graph
from tilewright.graph.workload import Workload

TaskKey = tuple[str, tuple[Form, ...]]


def task_key(item: KernelCall) -> TaskKey:
    """Identity of a task: workload key and port layouts."""
    return item.call.workload.key, item.forms


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A kernel the network needs: calls with equal workload and layouts share it."""

    key: TaskKey
    name: str
    workload: Workload
    forms: tuple[Form, ...]
    count: int
    nodes: tuple[str, ...]


def fused_network(graph: Graph) -> FusedNetwork:
    """Clean, fuse, and collapse the rows of pointwise convolutions."""
    network = fuse(clean(graph))
    calls = tuple(replace(call, workload=collapse_rows(call.workload)) for call in network.calls)
    return FusedNetwork(graph=network.graph, calls=calls)


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
