"""One ONNX node to translate: its tensors, and its attributes read with types and defaults.

A translation is a function of a node, registered under the names of its operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tilewright.core.errors import ModelError
from tilewright.graph.indices import IndexRange
from tilewright.graph.network import Array
from tilewright.models.naming import quoted
from tilewright.models.onnx_import.builder import GraphBuilder, Tensor, axis_of
from tilewright.models.weights import array_of

TRAINING_HINT = "Export the network for inference: in PyTorch after `model.eval()`."


def shortest(value: float) -> float:
    """The shortest decimal that is the same float32."""
    return float(str(np.float32(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """A node to translate. `inputs` are tensors of our graph, None where an input is left out.

    `opset` is the version of the operator set of the node's domain.
    """

    builder: GraphBuilder
    name: str
    opset: int
    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto

    @property
    def operator(self) -> str:
        """The name of the operator within its domain."""
        return self.proto.op_type

    @property
    def full_name(self) -> str:
        """The operator's name, behind that of its domain where this is not ONNX's own."""
        return f"{self.proto.domain}.{self.operator}" if self.proto.domain else self.operator

    @property
    def title(self) -> str:
        """What errors call the node."""
        return f"node {quoted(self.name)} ({quoted(self.operator)})"

    def given(self, index: int) -> Tensor | None:
        """Input number `index`, None when left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> Tensor:
        """Input number `index`; ModelError when left out."""
        found = self.given(index)
        if found is None:
            raise ModelError("an input is left out that this operator needs")
        return found

    def several(self, count: int) -> tuple[Tensor, ...]:
        """The first so many inputs; ModelError when one is left out."""
        return tuple(self.input(index) for index in range(count))

    def value(self, index: int) -> Array | None:
        """The values of an input when they are known, else None, also when it is left out."""
        found = self.given(index)
        return None if found is None else found.value

    def known(self, index: int, default: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """The integers of an input, None when they are not known; `default` when left out."""
        found = self.given(index)
        return default if found is None else found.integers

    def constant(self, array: Array) -> Tensor:
        """Add a generated constant."""
        return self.builder.constant(array)

    def uses_output(self, index: int) -> bool:
        """Whether output number `index` is asked for."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        return tuple(int(item) for item in self.attributes.get(name, default))

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return shortest(self.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        value = self.attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def tensor(self, name: str) -> Array | None:
        """A tensor attribute."""
        value = self.attributes.get(name)
        return array_of(value) if isinstance(value, onnx.TensorProto) else None

    def axis(self, rank: int, default: int) -> int:
        """The attribute `axis`, counted from the front; ModelError when there is none."""
        return axis_of(self.integer("axis", default), rank, self.name)

    def altered(self, inputs: tuple[Tensor | None, ...], **attributes: Any) -> OnnxNode:
        """The same node with other inputs, and with attributes changed, or left out where None."""
        proto = onnx.NodeProto.FromString(self.proto.SerializeToString())
        kept = [entry for entry in proto.attribute if entry.name not in attributes]
        del proto.attribute[:]
        given = {name: value for name, value in attributes.items() if value is not None}
        proto.attribute.extend(kept)
        proto.attribute.extend(onnx.helper.make_attribute(*entry) for entry in given.items())
        rest = {name: value for name, value in self.attributes.items() if name not in attributes}
        return replace(self, inputs=inputs, attributes=rest | given, proto=proto)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A node to be carried along, and what is emitted from its only result."""

    node: OnnxNode
    then: Callable[[Tensor], Tensor]


Translated = Tensor | Sequence[Tensor | None] | OnnxNode | Carried | None
Translate = Callable[[OnnxNode], Translated]
"""Emits nodes and gives each output's tensor; or gives a node to be carried along in place of this
one, or None for "as it is"."""

TRANSLATIONS: dict[str, Translate] = {}


def translates(*operators: str) -> Callable[[Translate], Translate]:
    """Register a function for ONNX operators, those of other domains as `DOMAIN.NAME`."""

    def register(function: Translate) -> Translate:
        TRANSLATIONS.update(dict.fromkeys(operators, function))
        return function

    return register


def training_refused() -> ModelError:
    """The error for a node in training mode: this is inference."""
    return ModelError("it is in training mode, and this is inference", hint=TRAINING_HINT)


def indexed_shape(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape; raises ModelError for that of a scalar."""
    if not shape:
        raise ModelError(f"node {quoted(node.name)} takes elements of a scalar by their index")
    return shape


def require_indices(known: Array | None, ranges: Sequence[IndexRange]) -> None:
    """Raise ModelError when indices that are known are out of range."""
    if known is None or not known.size:
        return
    columns: Any = known.reshape(-1, len(ranges))
    for values, valid in zip(columns.T, ranges, strict=True):
        wrong = values[(values < valid.lowest) | (values > valid.highest)]
        if wrong.size:
            raise ModelError(f"the index {np.ravel(wrong)[0]} is outside {valid}")
