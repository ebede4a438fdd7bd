"""What the zoo knows about a network before building it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.models.zoo._builder import GraphBuilder

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """A network of the zoo with its published figures.

    `parameters` counts trainable values: no running statistics, a tied matrix once.
    `multiply_adds` is for batch 1, None where no published figure fits this input size. Shapes
    are for batch 1, which is always axis 0. `integer_limit` is the exclusive upper bound of
    int64 inputs (the vocabulary), None for networks that read floats. `source` names the paper
    and the implementation the graph follows.
    """

    name: str
    construct: Callable[[GraphBuilder], None]
    parameters: int
    multiply_adds: int | None
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    source: str
    integer_limit: int | None = None

    def build(self, *, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
        """The network as an ONNX model with random weights.

        Raises ValueError if `batch` is below 1.
        """
        return self._build(batch, seed, weights=True)

    def outline(self, *, batch: int = 1) -> onnx.ModelProto:
        """The network with the shapes of its weights and none of their data.

        Enough for shape inference and counting; it cannot run.
        """
        return self._build(batch, 0, weights=False)

    def _build(self, batch: int, seed: int, *, weights: bool) -> onnx.ModelProto:
        builder = GraphBuilder(self.name, batch=batch, seed=seed, weights=weights)
        self.construct(builder)
        model = builder.model()
        model.graph.doc_string = self.source
        return model
