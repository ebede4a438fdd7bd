"""The child process in which torch, with its compiler, runs our graph of a model.

Weights are frozen into the compiled network, so that the compiler may repack and fuse them.
"""

# torch is an extra without types here
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tilewright.core.child import serve, wait_until_asleep
from tilewright.graph.network import Graph
from tilewright.measure.peers.timing import time_calls
from tilewright.measure.peers.torch_graph import TorchGraph
from tilewright.measure.peers.torch_operators import torch
from tilewright.models.loading import load

Arrays = dict[str, np.ndarray[Any, Any]]


class TorchModule(torch.nn.Module):
    """A graph as a module: inputs and outputs by position, constants as buffers."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        network = TorchGraph(graph)
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


class Engine:
    """One graph, compiled for the shapes it has; fp32 stays fp32."""

    def __init__(self) -> None:
        self._inputs: tuple[str, ...] = ()
        self._outputs: tuple[str, ...] = ()
        self._call: Any = None

    def start(self, model_path: str, threads: int, _precision: str) -> str:
        """Read the model and compile it, which takes tens of seconds."""
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        compiler: Any = import_module("torch._inductor.config")
        compiler.freezing = True
        graph = load(model_path).graph
        self._inputs, self._outputs = tuple(graph.inputs), tuple(graph.outputs)
        self._call = torch.compile(TorchModule(graph).eval())
        kinds = [graph.types[name] for name in self._inputs]
        with torch.inference_mode():
            self._call(*(torch.from_numpy(np.zeros(k.shape, dtype=k.dtype)) for k in kinds))
        wait_until_asleep()
        return "fp32"

    def run(self, inputs: Arrays) -> Arrays:
        """One call; outputs by name."""
        with torch.inference_mode():
            results = self._call(*self._tensors(inputs))
        arrays = [np.ascontiguousarray(value.numpy()) for value in results]
        wait_until_asleep()
        return dict(zip(self._outputs, arrays, strict=True))

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds per call with the inputs converted ahead."""
        tensors = self._tensors(inputs)
        with torch.inference_mode():
            return time_calls(lambda: self._call(*tensors), repeats, warmup)

    def _tensors(self, inputs: Arrays) -> list[Any]:
        return [torch.from_numpy(np.array(inputs[name])) for name in self._inputs]


if __name__ == "__main__":
    engine = Engine()
    serve({"start": engine.start, "run": engine.run, "time": engine.time})
