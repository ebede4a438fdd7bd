"""Layout changes as calls of their own, where a reader wants a tensor in another layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.core.forms import PLAIN, Form
from tilewright.graph.fused import FusedNetwork, TaskCall
from tilewright.graph.network import attributes
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload


def copying(kind: TensorType) -> Workload:
    """A tensor as it is: with two layouts, the change from one to the other."""
    return Workload(
        arguments=(Argument(type=kind),),
        steps=(Step(operator="identity", inputs=(0,), attributes=attributes()),),
    )


def with_conversions(
    network: FusedNetwork, forms: Mapping[str, Form], wanted: Mapping[str, tuple[Form, ...]]
) -> tuple[FusedNetwork, dict[str, Form]]:
    """The network with a copy of every tensor that a call wants in another layout.

    `forms` names the layout each tensor is written in, `wanted` the layouts of the ports of calls
    by name (calls left out read what is there). x@blocked32 = identity(x) goes right before its
    first reader; readers that want the same share it. Returns the network and all layouts.
    """
    graph = network.graph
    types, placed = dict(graph.types), dict(forms)
    copies: dict[tuple[str, Form], str] = {}
    calls: list[TaskCall] = []
    for call in network.calls:
        ports = wanted.get(call.name, ())
        inputs = list(call.inputs)
        for index, (tensor, form) in enumerate(zip(call.inputs, ports, strict=False)):
            if tensor in graph.constants or forms.get(tensor, PLAIN) == form:
                continue
            if (tensor, form) not in copies:
                copied = f"{tensor}@{form}"
                while copied in types:
                    copied += "@"
                types[copied], placed[copied] = types[tensor], form
                copies[tensor, form] = copied
                calls.append(_copy(call, tensor, copied, types[tensor]))
            inputs[index] = copies[tensor, form]
        calls.append(replace(call, inputs=tuple(inputs)))
    return FusedNetwork(graph=replace(graph, types=types), calls=tuple(calls)), placed


def _copy(reader: TaskCall, tensor: str, copied: str, kind: TensorType) -> TaskCall:
    return TaskCall(
        name=copied,
        workload=copying(kind),
        inputs=(tensor,),
        output=copied,
        nodes=reader.nodes,
        kind="conversion",
    )
