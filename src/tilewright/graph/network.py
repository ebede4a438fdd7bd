"""The one graph: nodes of our own operator vocabulary over named tensors.

`models` makes it once from ONNX; cleaning, fusion and layouts are decided on it in plain Python.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.grouping import grouped

UNKNOWN = -1
"""The extent of an axis that is known only when the network has run."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A shape and the name of an element type (`core.element_types`).

    Shapes are static; only what an island hands out of the network may have axes of `UNKNOWN`
    extent, which count as one element.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def is_static(self) -> bool:
        """Whether the shape is known before the network runs."""
        return UNKNOWN not in self.shape

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return abs(prod(self.shape))

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether it may turn out to have this shape."""
        pairs = zip(self.shape, shape, strict=False)
        return len(shape) == len(self.shape) and all(a in (UNKNOWN, b) for a, b in pairs)

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return self.elements * element_type(self.dtype).bytes

    def __str__(self) -> str:
        sizes = ("?" if size == UNKNOWN else str(size) for size in self.shape)
        return f"{self.dtype}[{','.join(sizes)}]"


Array = npt.NDArray[np.generic]
AttributeValue = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | None
Attributes = tuple[tuple[str, AttributeValue], ...]


def attributes(**values: AttributeValue) -> Attributes:
    """Attributes in canonical (name) order."""
    return tuple(sorted(values.items()))


def fresh_name(base: str, taken: Container[str], mark: str = ".") -> str:
    """A name that is not taken: `base`, or else `base.2`, `base.3` and so on."""
    names = chain([base], (f"{base}{mark}{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An operator with its attributes."""

    operator: str
    attributes: Attributes = ()

    @property
    def named(self) -> dict[str, AttributeValue]:
        """The attributes by name."""
        return dict(self.attributes)

    def attribute(self, name: str) -> AttributeValue:
        """The value of one attribute."""
        for key, value in self.attributes:
            if key == name:
                return value
        raise InternalError(f"{self.operator} has no attribute {name!r}")

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of integers."""
        return tuple(map(int, self._read(name, tuple, "tuple")))

    def integer(self, name: str) -> int:
        """An attribute that is one integer."""
        return self._read(name, int, "integer")

    def number(self, name: str) -> float:
        """An attribute that is one float; infinities are text."""
        return float(self._read(name, int | float | str, "number"))

    def _read(self, name: str, kind: Any, called: str) -> Any:
        value = self.attribute(name)
        if not isinstance(value, kind):
            raise InternalError(f"{self.operator}.{name} is no {called}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Applied):
    """One operator application. Only `opaque` nodes have more than one output."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def output(self) -> str:
        """The only output."""
        if len(self.outputs) != 1:
            raise InternalError(f"node {self.name} has {len(self.outputs)} outputs")
        return self.outputs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in topological order.

    `inputs` and `outputs` keep the names of the model file. Every tensor, constants included, has
    an entry in `types`; a tensor is either an input, a constant, or written by exactly one node.
    `examples` are values of inputs where others may not be valid, such as a shape; of inputs that
    are `fixed`, none is.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    examples: Mapping[str, Array] = field(default_factory=dict[str, Array])
    fixed: frozenset[str] = frozenset()

    def producers(self) -> dict[str, Node]:
        """Which node writes each tensor."""
        return {output: node for node in self.nodes for output in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Which nodes read each tensor, once per reading port; graph outputs do not count."""
        return grouped([(name, node) for node in self.nodes for name in node.inputs])

    def rebuilt(
        self,
        nodes: Iterable[Node],
        *,
        types: Mapping[str, TensorType] | None = None,
        constants: Mapping[str, Array] | None = None,
    ) -> Graph:
        """The same network with other nodes; unused tensors are dropped."""
        kept = tuple(nodes)
        merged_types = {**self.types, **(types or {})}
        merged_constants = {**self.constants, **(constants or {})}
        used = {*self.inputs, *self.outputs}
        for node in kept:
            used.update(node.inputs, node.outputs)
        return replace(
            self,
            nodes=kept,
            types={name: kind for name, kind in merged_types.items() if name in used},
            constants={name: a for name, a in merged_constants.items() if name in used},
        )
