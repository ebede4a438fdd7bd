"""One ONNX node, its attributes read with types and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tilewright.graph.network import Array
from tilewright.models.weights import array_of

AUTOMATIC = {"SAME_UPPER", "SAME_LOWER", "VALID"}


def shortest(value: float) -> float:
    """The shortest decimal that is the same float32."""
    return float(str(np.float32(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """A node to translate. `inputs` are tensors of our graph, empty where an input is left out.

    `opset` is the version of the operator set of the node's domain.
    """

    name: str
    operator: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto

    def input(self, index: int) -> str:
        """Input number `index`, empty when left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def uses_output(self, index: int) -> bool:
        """Whether output number `index` is asked for."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        return tuple(int(item) for item in self.attributes.get(name, default))

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return shortest(self.attributes.get(name, default))

    def numbers(self, name: str) -> tuple[float, ...]:
        """An attribute that is a list of floats."""
        return tuple(shortest(item) for item in self.attributes.get(name, ()))

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        value = self.attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def tensor(self, name: str) -> Array | None:
        """A tensor attribute."""
        value = self.attributes.get(name)
        return array_of(value) if isinstance(value, onnx.TensorProto) else None

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.attributes

    def altered(self, inputs: tuple[str, ...], **attributes: Any) -> OnnxNode:
        """The same node with other inputs, and with attributes changed, or left out where None."""
        proto = onnx.NodeProto.FromString(self.proto.SerializeToString())
        kept = [entry for entry in proto.attribute if entry.name not in attributes]
        del proto.attribute[:]
        given = {name: value for name, value in attributes.items() if value is not None}
        proto.attribute.extend(kept)
        proto.attribute.extend(onnx.helper.make_attribute(*entry) for entry in given.items())
        rest = {name: value for name, value in self.attributes.items() if name not in attributes}
        return replace(self, inputs=inputs, attributes=rest | given, proto=proto)


def read_node(proto: onnx.NodeProto, name: str, opset: int, inputs: tuple[str, ...]) -> OnnxNode:
    """An ONNX node with its inputs renamed to tensors of our graph."""
    values = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in proto.attribute
    }
    return OnnxNode(
        name=name,
        operator=proto.op_type,
        domain=proto.domain,
        opset=opset,
        inputs=inputs,
        outputs=tuple(proto.output),
        attributes=values,
        proto=proto,
    )
