"""The child process in which eager torch runs our graph of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.network import Graph
from tilewright.measure.peers.engine import Arrays, Engine
from tilewright.measure.peers.torch_graph import TorchGraph
from tilewright.measure.peers.torch_operators import torch
from tilewright.models.loading import load


class TorchEngine(Engine):
    """One graph. Torch computes fp32 as fp32 unless told otherwise, so there is one precision."""

    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Read the model and bind it to torch."""
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self._graph = load(model_path).graph
        self._call = self.bound(self._graph)
        return "fp32"

    def bound(self, graph: Graph) -> Callable[..., Any]:
        """A function from the graph's inputs to its outputs, both in its order."""
        return TorchGraph(graph).run

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        tensors = [torch.from_numpy(np.array(inputs[name])) for name in self._graph.inputs]
        return lambda: self._call(*tensors)

    def outputs(self, result: Any) -> Arrays:
        arrays = [np.ascontiguousarray(value.numpy()) for value in result]
        return dict(zip(self._graph.outputs, arrays, strict=True))

    def run(self, inputs: Arrays) -> Arrays:
        with torch.inference_mode():
            return super().run(inputs)

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        with torch.inference_mode():
            return super().time(inputs, repeats, warmup)


if __name__ == "__main__":
    TorchEngine().serve()
