"""A peer that computes a network in numpy, in the place of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Array
from tilewright.models.loaded import PreparedNetwork


class NumpyReference:
    """Gives the outputs of `network`, each too large by `off_by`; takes a millisecond."""

    name, precision = "onnxruntime", "fp32"

    def __init__(self, network: PreparedNetwork, off_by: float = 0.0) -> None:
        self.network, self.off_by = network, off_by

    def available(self) -> None:
        """It is there."""

    def start(self, *_arguments: object) -> None:
        """Nothing starts."""

    def stop(self) -> None:
        """Nothing stops."""

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """By the names that the ONNX file has."""
        graph = self.network.graph
        found = run_graph(graph, inputs)
        outputs = zip(self.network.model.outputs, graph.outputs, strict=True)
        return {name: found[tensor] + np.float32(self.off_by) for name, tensor in outputs}

    def time(self, _inputs: object, repeats: int, _warmup: int) -> Sequence[float]:
        """The same each time."""
        return [1e-3] * repeats
