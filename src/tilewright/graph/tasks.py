"""The tasks of a network: what is tuned, and how often the network calls it; and the bare anchor of
each, the operator alone, as operator-level tuning sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.core.forms import PLAIN, Form, channel_block, in_channel_blocks
from tilewright.graph.clean import clean
from tilewright.graph.clean.quantized_attention import recognize_quantized_attention
from tilewright.graph.clean.simplify import drop_unused
from tilewright.graph.fuse import FusedNetwork, fuse
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


def fused_network(graph: Graph, *, attention_on_codes: bool = False) -> FusedNetwork:
    """Clean, fuse, and collapse the rows of pointwise convolutions; where a kernel computes
    attention on codes, that is one task."""
    cleaned = clean(graph)
    if attention_on_codes:
        found = recognize_quantized_attention(cleaned)
        cleaned = cleaned if found is cleaned else clean(drop_unused(found))
    network = fuse(cleaned)
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


def bare_anchor(
    workload: Workload, forms: tuple[Form, ...]
) -> tuple[Workload, tuple[Form, ...]] | None:
    """The anchor of a subgraph as a workload of its own, and its forms; None without an anchor.

    conv2d(x, w) + b → relu → conv2d(x, w), its result in the type the anchor gives (an integer
    convolution's int32, say). An operand that the subgraph computes becomes data of the same type,
    in the layout of an argument with that shape.
    """
    step = workload.anchor
    if step is None:
        return None
    given = list(zip(workload.arguments, forms, strict=False))
    ports: list[tuple[Argument, Form]] = []
    for value in step.inputs:
        kind = workload.types[value]
        alike = (form for a, form in given if (a.type.shape, a.role) == (kind.shape, "data"))
        inside = value >= len(given)
        ports.append((Argument(type=kind), next(alike, PLAIN)) if inside else given[value])
    bare = Workload(
        arguments=tuple(argument for argument, _ in ports),
        steps=(replace(step, inputs=tuple(range(len(ports)))),),
    )
    block = channel_block(forms[-1]) if in_channel_blocks(forms[-1]) else 0
    shape = bare.result.shape
    fits = block == 0 or (len(shape) == len(workload.result.shape) and shape[1] % block == 0)
    return bare, (*(form for _, form in ports), forms[-1] if fits else PLAIN)


def bare_key(workload: Workload) -> str:
    """The key of the bare anchor of a workload; without an anchor its own."""
    found = bare_anchor(workload, (PLAIN,) * (len(workload.arguments) + 1))
    return workload.key if found is None else found[0].key
