"""Networks of the zoo with the shapes of their weights and none of the data: enough for shape
inference and counting, at no cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.models import zoo
from tilewright.models.zoo._builder import GraphBuilder, Shape
from tilewright.models.zoo._description import append_network, zoo_sections


class _Outline(GraphBuilder):
    """Writes parameters that only claim to lie in a file."""

    def parameter(self, path: str, array: Any, dtype: str = "float32") -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.model.graph.initializer.add(
            name=path, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL
        )
        self._taken.add(path)
        self._types[path] = helper.make_tensor_type_proto(kind, array.shape)
        return path

    def drawn_normal(self, path: str, shape: Shape, std: float, mean: float = 0.0) -> Any:
        return np.broadcast_to(np.float32(1), shape)

    def drawn_weights(
        self, path: str, shape: Shape, gain: float, axes: Shape, kept: float = 0.0
    ) -> Any:
        return self.drawn_normal(path, shape, 1.0)

    def drawn_uniform(self, path: str, shape: Shape, low: float, high: float) -> Any:
        return np.broadcast_to(np.float32(1), shape)


def zoo_outline(name: str, batch: int = 1) -> onnx.ModelProto:
    """A network that cannot run."""
    entry = zoo.entry(name)
    graph = _Outline(name, batch=batch)
    append_network(graph, entry.description, zoo_sections(), quantized=entry.quantized)
    return graph.model
