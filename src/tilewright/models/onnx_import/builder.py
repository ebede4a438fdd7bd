"""The graph under construction: typed tensors, constants folded as they come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.folding import FoldingAllowance
from tilewright.graph.network import Array, AttributeValue, Node, attributes
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted


class GraphBuilder:
    """Collects nodes in topological order.

    `reserved` are the names of the model file: generated names never collide with them.
    """

    def __init__(self, reserved: set[str]) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self._taken = set(reserved)
        self._node_names: set[str] = set()
        self._settled: set[str] = set()
        self._scope = ""
        self._allowance = FoldingAllowance(())

    def allow_folding(self, weights: Iterable[Array]) -> None:
        """Measure what may be folded by the weights of the model."""
        self._allowance = FoldingAllowance(weights)

    def enter(self, scope: str) -> None:
        """What follows belongs to the ONNX node `scope`."""
        self._scope = scope

    def declare(self, name: str, kind: TensorType) -> None:
        """Add a graph input."""
        self.types[name] = kind
        self._settled.add(name)

    def declare_constant(self, name: str, array: Array) -> None:
        """Add a weight under the file's name."""
        self.constants[name] = array
        self.types[name] = TensorType(tuple(array.shape), array.dtype.name)
        self._settled.add(name)

    def constant(self, array: Array) -> str:
        """Add a generated constant; its name."""
        name = self._fresh(f"{self._scope}/constant")
        self.constants[name] = array
        self.types[name] = TensorType(tuple(array.shape), array.dtype.name)
        return name

    def settle(self, result: str, output: str) -> str:
        """Give a fresh result the file's name; a tensor passed through keeps its own."""
        if result in self._settled or output in self.types:
            return result
        self.rename(result, output)
        self._settled.add(output)
        return output

    def value(self, name: str) -> Array | None:
        """The values of a tensor when they are known, else None (also for a left-out input)."""
        return self.constants.get(name)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """The values of a constant integer tensor, flattened."""
        array = self.constants.get(name)
        return None if array is None else tuple(int(item) for item in array.reshape(-1))

    def type_of(self, name: str) -> TensorType:
        """The type of a tensor; ModelError for an input that is left out."""
        if not name:
            raise ModelError("an input is left out that this operator needs")
        return self.types[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.type_of(name).shape

    def dtype(self, name: str) -> str:
        """The element type of a tensor."""
        return self.type_of(name).dtype

    def emit(self, operator: str, *inputs: str, **named: AttributeValue) -> str:
        """Apply an operator; the name of its result. Constant operands are folded where the result
        stays small; what has no elements is known."""
        entry = OPERATORS[operator]
        kinds = tuple(self.type_of(name) for name in inputs)
        kind = entry.infer(kinds, named)
        if kind.elements == 0:
            return self.constant(np.empty(kind.shape, np.dtype(kind.dtype)))
        arrays = [self._values(name) for name in inputs if self._known(name)]
        known = len(arrays) == len(inputs)
        if known and self._allowance.grants(kind, arrays, entry.flop(kinds, kind, named)):
            try:
                return self.constant(np.asarray(entry.reference(tuple(arrays), named)))
            except IndexError as error:
                raise ModelError(f"{operator}: {error}") from error
        result = self._fresh(f"{self._scope}/{operator}")
        self.types[result] = kind
        self.nodes.append(
            Node(
                name=self._node_name(operator),
                operator=operator,
                inputs=inputs,
                outputs=(result,),
                attributes=attributes(**named),
            )
        )
        return result

    def emit_opaque(
        self, inputs: Sequence[str], kinds: Sequence[TensorType], **named: AttributeValue
    ) -> tuple[str, ...]:
        """Add an opaque node with results of the given types; their names. Results without elements
        are known."""
        if all(kind.elements == 0 for kind in kinds):
            return tuple(self.constant(np.empty(k.shape, np.dtype(k.dtype))) for k in kinds)
        results = tuple(self._fresh(f"{self._scope}/result") for _ in kinds)
        self.types.update(zip(results, kinds, strict=True))
        self.nodes.append(
            Node(
                name=self._node_name("opaque"),
                operator="opaque",
                inputs=tuple(inputs),
                outputs=results,
                attributes=attributes(**named),
            )
        )
        return results

    def _known(self, name: str) -> bool:
        return name in self.constants or self.types[name].elements == 0

    def _values(self, name: str) -> Array:
        kind = self.types[name]
        empty = np.empty(kind.shape, np.dtype(kind.dtype)) if kind.elements == 0 else None
        return self.constants[name] if empty is None else empty

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The tensor in another shape; itself when it has that shape already."""
        wanted = tuple(int(size) for size in shape)
        return name if self.shape(name) == wanted else self.emit("reshape", name, shape=wanted)

    def transpose(self, name: str, permutation: Sequence[int]) -> str:
        """The tensor with axes permuted; itself when nothing moves."""
        order = tuple(int(axis) for axis in permutation)
        if order == tuple(range(len(order))):
            return name
        return self.emit("transpose", name, permutation=order)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> str:
        """A tensor of one value; a constant where it is small."""
        return self.filled(shape, np.asarray(value).astype(np.dtype(dtype)))

    def filled(self, shape: Sequence[int], value: Array) -> str:
        """A tensor of one value, given as an array of no axes; a constant where it is small."""
        filling = self.constant(value)
        sizes = tuple(int(size) for size in shape)
        return self.emit("expand", filling, shape=sizes) if sizes else filling

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name wherever it is read or written."""
        self.types[new] = self.types.pop(old)
        if old in self.constants:
            self.constants[new] = self.constants.pop(old)
        self._taken.add(new)
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            if old in node.inputs or old in node.outputs:
                self.nodes[index] = replace(
                    node,
                    inputs=tuple(new if name == old else name for name in node.inputs),
                    outputs=tuple(new if name == old else name for name in node.outputs),
                )
            if new in self.nodes[index].outputs:
                break

    def bytes(self, name: str) -> int:
        """The size of a tensor in memory."""
        return self.types[name].bytes

    def elements(self, name: str) -> int:
        """Number of elements of a tensor."""
        return prod(self.shape(name))

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self._taken or name in self.types:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def _node_name(self, operator: str) -> str:
        name, count = self._scope, 1
        while name in self._node_names:
            name = f"{self._scope}/{operator}" + (f"_{count}" if count > 1 else "")
            count += 1
        self._node_names.add(name)
        return name


def axis_of(axis: int, rank: int, name: str) -> int:
    """The axis counted from the front; ModelError when there is none."""
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"node {quoted(name)}: axis {axis} is outside a tensor of rank {rank}")
    return axis % rank if rank else 0
