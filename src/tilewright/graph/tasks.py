"""The tasks of a network: what is tuned, and how often the network calls it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.core.forms import Form
from tilewright.graph.clean import clean
from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork
from tilewright.graph.network import Graph
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Argument, Workload

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


def collapse_rows(workload: Workload) -> Workload:
    """Rewrite of pointwise workloads: rows and columns become one axis. Itself for others.

        conv2d 1×1 on [N, C, H, W]  -->  conv2d 1×1 on [N, C, 1, H*W]

    Memory does not change, so the runtime passes views; the kernel gains an axis that tiles well
    whatever H and W are, and equal products H*W share a key.
    """
    anchor = workload.anchor
    if anchor is None or anchor.operator != "conv2d":
        return workload
    (_, filters), image = workload.step_types(workload.anchor_index or 0)
    plane, weight = image.shape[2:], anchor.inputs[1]
    pointwise = filters.shape[2:] == anchor.integers("strides") == (1, 1)
    if plane[0] == 1 or not pointwise or any(anchor.integers("padding")):
        return workload
    if not all(s is anchor or OPERATORS[s.operator].elementwise for s in workload.steps):
        return workload
    arguments: list[Argument] = []
    for index, argument in enumerate(workload.arguments):
        shape = argument.type.shape
        if index != weight and shape[-2:] == plane:
            shape = (*shape[:-2], 1, plane[0] * plane[1])
        elif index != weight and any(extent != 1 for extent in shape[-2:]):
            return workload
        arguments.append(replace(argument, type=replace(argument.type, shape=shape)))
    return Workload(arguments=tuple(arguments), steps=workload.steps)
