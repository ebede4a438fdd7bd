"""The child process in which torch, with its compiler, runs our graph of a model.

Weights are frozen into the compiled network, so that the compiler may repack and fuse them.
"""

# torch is an extra without types here
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.graph.network import Graph
from tilewright.measure.peers.torch_engine import Place, TorchEngine, TorchGraph, as_it_is
from tilewright.measure.peers.torch_operators import torch


class TorchModule(torch.nn.Module):
    """A graph as a module: inputs and outputs by position, constants as buffers."""

    def __init__(self, graph: Graph, place: Place) -> None:
        super().__init__()
        network = TorchGraph(graph, place)
        self.steps = network.steps
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.places: dict[str, str] = {}
        for number, (name, tensor) in enumerate(network.constants.items()):
            self.register_buffer(f"constant{number}", tensor)
            self.places[name] = f"constant{number}"

    def forward(self, *given: Any) -> tuple[Any, ...]:
        """The outputs in the graph's order."""
        values = {name: getattr(self, place) for name, place in self.places.items()}
        values |= dict(zip(self.inputs, given, strict=True))
        for call, names, output in self.steps:
            values[output] = call(*(values[name] for name in names))
        return tuple(values[name] for name in self.outputs)


def compiled(graph: Graph, place: Place = as_it_is) -> Callable[..., Any]:
    """A function from the graph's inputs to its outputs, compiled for the shapes it has, which
    takes tens of seconds."""
    compiler: Any = import_module("torch._inductor.config")
    compiler.freezing = True
    call: Any = torch.compile(TorchModule(graph, place).eval())
    kinds = [graph.types[name] for name in graph.inputs]
    with torch.inference_mode():
        call(*(place(torch.from_numpy(np.zeros(k.shape, dtype=k.dtype))) for k in kinds))
    return call


class CompiledTorchEngine(TorchEngine):
    """One graph, compiled; fp32 stays fp32."""

    def bound(self, graph: Graph) -> Callable[..., Any]:
        """Compiling takes tens of seconds."""
        return compiled(graph)


if __name__ == "__main__":
    CompiledTorchEngine().serve()
