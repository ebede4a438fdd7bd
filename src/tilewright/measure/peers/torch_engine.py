"""The child process in which eager torch runs our graph of a model, operator by operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.network import Graph, Node
from tilewright.measure.peers.engine import Arrays, Engine
from tilewright.measure.peers.torch_operators import torch, torch_call
from tilewright.models.loading import load

_BIASED = {"conv2d": 3, "conv2d_transpose": 3, "dense": 1}
"""Operators torch adds a bias to by itself, and the rank of that bias in our graph."""


Place = Callable[[Any], Any]
"""What puts a tensor of the CPU where another processor computes."""


def as_it_is(tensor: Any) -> Any:
    """The tensor, which stays where it is."""
    return tensor


def _bias_of(graph: Graph, node: Node, following: Node) -> str | None:
    """The constant that `following` adds per channel to the result of `node`, if it is such."""
    if following.operator != "add" or len(set(following.inputs)) != 2:
        return None
    (other,) = set(following.inputs) - {node.output}
    channels = graph.types[node.output].shape[-1 if node.operator == "dense" else 1]
    wanted = (channels, *[1] * (_BIASED[node.operator] - 1))
    return other if other in graph.constants and graph.types[other].shape == wanted else None


class TorchGraph:
    """A graph bound to torch: weights converted once, biases given to the operators before them.

    `steps` are calls with the names of the tensors they read and of the one they make; `constants`
    are torch tensors by name, where `place` puts those of the CPU.

    Raises `NotImplementedError` when torch has no call for an operator.
    """

    def __init__(self, graph: Graph, place: Place = as_it_is) -> None:
        self._graph = graph
        self.constants: dict[str, Any] = {
            name: place(torch.from_numpy(np.array(array)))
            for name, array in graph.constants.items()
        }
        self.steps = self._bind()
        read = [name for _, inputs, _ in self.steps for name in inputs]
        self._readers = Counter([*read, *graph.outputs, *graph.constants])

    def _bind(self) -> list[tuple[Callable[..., Any], tuple[str, ...], str]]:
        consumers = self._graph.consumers()
        steps: list[tuple[Callable[..., Any], tuple[str, ...], str]] = []
        merged: set[str] = set()
        for node in self._graph.nodes:
            if node.name in merged:
                continue
            inputs, output = node.inputs, node.outputs[0]
            readers = consumers.get(output, [])
            bias = None
            if node.operator in _BIASED and len(readers) == 1 and output not in self._graph.outputs:
                bias = _bias_of(self._graph, node, readers[0])
            if bias is not None:
                flat = f"{bias} flat"
                self.constants[flat] = self.constants[bias].reshape(-1)
                inputs, output = (*inputs, flat), readers[0].output
                merged.add(readers[0].name)
            steps.append((torch_call(node.operator, dict(node.attributes)), inputs, output))
        return steps

    def run(self, *given: Any) -> tuple[Any, ...]:
        """The output tensors, inputs and outputs in the graph's order; tensors are let go after
        their last reader."""
        values = {**self.constants, **dict(zip(self._graph.inputs, given, strict=True))}
        left = self._readers.copy()
        for call, names, output in self.steps:
            values[output] = call(*(values[name] for name in names))
            for name in names:
                left[name] -= 1
                if left[name] == 0:
                    del values[name]
        return tuple(values[name] for name in self._graph.outputs)


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
        arrays = [np.ascontiguousarray(value.cpu().numpy()) for value in result]
        return dict(zip(self._graph.outputs, arrays, strict=True))

    run = torch.inference_mode()(Engine.run)
    time = torch.inference_mode()(Engine.time)


if __name__ == "__main__":
    TorchEngine().serve()
