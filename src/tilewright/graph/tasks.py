"""The tasks of a network: what is tuned, and how often the network calls it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.core.forms import Form
from tilewright.graph.clean import clean
from tilewright.graph.collapse import collapse_rows
from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork
from tilewright.graph.network import Graph
from tilewright.graph.workload import Workload

TaskKey = tuple[str, tuple[Form, ...]]
"""Identity of a task: workload key and port layouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A kernel the network needs: calls with equal workload and layouts share it."""

    key: TaskKey
    name: str
    workload: Workload
    forms: tuple[Form, ...]
    count: int
    nodes: tuple[str, ...]


def counted(tasks: Iterable[Task]) -> dict[TaskKey, Task]:
    """Tasks by key in order of first use, those with one key as one."""
    found: dict[TaskKey, Task] = {}
    for task in tasks:
        known = found.setdefault(task.key, replace(task, count=0, nodes=()))
        count, nodes = known.count + task.count, (*known.nodes, *task.nodes)
        found[task.key] = replace(known, count=count, nodes=nodes)
    return found


def fused_network(graph: Graph) -> FusedNetwork:
    """Clean, fuse, and collapse the rows of pointwise convolutions."""
    network = fuse(clean(graph))
    calls = (replace(call, workload=collapse_rows(call.workload)) for call in network.calls)
    return replace(network, calls=tuple(calls))
