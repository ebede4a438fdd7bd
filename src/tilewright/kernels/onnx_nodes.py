"""What tasks are said in for libraries that read ONNX: nodes, and a task that is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.core.errors import TilewrightError
from tilewright.graph.network import Array, TensorType

OPSET = 18


class Untranslatable(TilewrightError):
    """A task that ONNX nodes cannot say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """A node of ONNX: `operator` with its domain before a last dot where that is not ONNX's own."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class OnnxTask:
    """A task as nodes. `inputs` are its arguments in their physical shapes, `output` its result in
    its own; `constants` belong to nodes."""

    inputs: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    nodes: list[OnnxNode] = field(default_factory=list[OnnxNode])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    output: str = ""

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; its name."""
        return self.emit_many(operator, 1, *inputs, **attributes)[0]

    def emit_many(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node; the names of its outputs."""
        names = [f"n{len(self.nodes)}_{place}" for place in range(count)]
        self.nodes.append(
            OnnxNode(operator=operator, inputs=inputs, outputs=tuple(names), attributes=attributes)
        )
        return names

    def constant(self, values: Any, dtype: str = "int64") -> str:
        """A tensor that belongs to a node; its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """A tensor in another shape."""
        return self.emit("Reshape", x, self.constant(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that is translated: its attributes, and the types of its operands and its result."""

    task: OnnxTask
    named: Mapping[str, Any]
    types: tuple[TensorType, ...]
    result: TensorType


def require(condition: bool, what: str) -> None:  # noqa: FBT001
    """Raise Untranslatable unless a task that has `what` can be said."""
    if not condition:
        raise Untranslatable(f"ONNX Runtime is not given {what}")
