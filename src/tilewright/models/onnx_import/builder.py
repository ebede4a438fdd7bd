"""The graph under construction: typed tensors to compute with, constants folded as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.folding import FoldingAllowance
from tilewright.graph.network import Array, AttributeValue, Node, attributes, fresh_name
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.models.naming import quoted


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph under construction.

    Its methods and arithmetic add nodes to the graph; numbers among operands become constants of
    the tensor's element type.
    """

    builder: GraphBuilder
    name: str

    @property
    def type(self) -> TensorType:
        """Shape and element type."""
        return self.builder.types[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """The static shape."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.type.dtype

    @property
    def value(self) -> Array | None:
        """The values when they are known, else None."""
        return self.builder.constants.get(self.name)

    @property
    def integers(self) -> tuple[int, ...] | None:
        """The values of a constant integer tensor, flattened."""
        return None if self.value is None else tuple(int(item) for item in self.value.reshape(-1))

    def emit(self, operator: str, *others: Tensor | float, **named: AttributeValue) -> Tensor:
        """Apply an operator to this tensor and others."""
        operands = [one if isinstance(one, Tensor) else self.filled(one) for one in others]
        return self.builder.emit(operator, self, *operands, **named)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self.emit("add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self.emit("subtract", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self.emit("multiply", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self.emit("divide", other)

    def filled(self, value: float, shape: Sequence[int] = ()) -> Tensor:
        """A tensor of one value and of this one's element type."""
        return self.builder.filled(shape, np.asarray(value).astype(np.dtype(self.dtype)))

    def cast(self, dtype: str) -> Tensor:
        """The tensor in another element type; itself when it has that type already."""
        return self if self.dtype == dtype else self.emit("cast", dtype=dtype)

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """The tensor in another shape; itself when it has that shape already."""
        wanted = tuple(int(size) for size in shape)
        return self if self.shape == wanted else self.emit("reshape", shape=wanted)

    def transpose(self, permutation: Sequence[int]) -> Tensor:
        """The tensor with axes permuted; itself when nothing moves."""
        order = tuple(int(axis) for axis in permutation)
        return self if order == (*range(len(order)),) else self.emit("transpose", permutation=order)

    def cut(self, parts: dict[int, slice]) -> Tensor:
        """The given range of some axes; the tensor itself when nothing is cut."""
        ranges = [parts.get(i, slice(None)).indices(size) for i, size in enumerate(self.shape)]
        if ranges == [(0, size, 1) for size in self.shape]:
            return self
        starts, stops, steps = (tuple(r[i] for r in ranges) for i in range(3))
        return self.emit("slice", starts=starts, stops=stops, steps=steps)

    def padded(
        self, before: Sequence[int], after: Sequence[int], value: float | str, mode: str
    ) -> Tensor:
        """The tensor with more elements around it."""
        return self.emit("pad", before=tuple(before), after=tuple(after), value=value, mode=mode)

    def take(self, indices: Array, axis: int) -> Tensor:
        """The elements at known places of an axis."""
        return self.emit("gather", self.builder.constant(indices), axis=axis)

    def plain(self, other: Tensor) -> Tensor:
        """A constant operand without leading axes of size one: [1,C,1,1] → [C,1,1].

        The result's shape stays, for `other` has at least as many axes.
        """
        if self.value is None or other.rank < self.rank:
            return self
        kept = (axis for axis, size in enumerate(self.shape) if size != 1)
        return self.reshape(self.shape[next(kept, self.rank) :])

    def with_operand(self, operator: str, other: Tensor) -> Tensor:
        """A binary operator with its constant operand, if there is just one, in plain shape."""
        if self.value is not None and other.value is not None:
            return self.emit(operator, other)
        return self.plain(other).emit(operator, other.plain(self))


class GraphBuilder:
    """Collects nodes in topological order.

    `reserved` are the names of the model file and of its constants: generated names never collide
    with them. `scope` is the ONNX node that what follows
    belongs to, `allowance` what may be folded.
    """

    def __init__(self, reserved: set[str], allowance: FoldingAllowance) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.scope = ""
        self._allowance = allowance
        self._reserved = frozenset(reserved)
        self._taken = set(reserved)
        self._node_names: set[str] = set()

    def constant(self, array: Array, name: str | None = None) -> Tensor:
        """Add a constant, a generated one unless it has a name."""
        tensor = self._fresh("constant") if name is None else Tensor(self, name)
        self.constants[tensor.name] = array
        self.types[tensor.name] = TensorType(tuple(array.shape), array.dtype.name)
        return tensor

    def filled(self, shape: Sequence[int], value: Array) -> Tensor:
        """A tensor of one value, given as an array of no axes; a constant where it is small."""
        filling = self.constant(value)
        sizes = tuple(int(size) for size in shape)
        return filling.emit("expand", shape=sizes) if sizes else filling

    def settle(self, result: Tensor, output: str) -> str:
        """Give a fresh result the file's name; a tensor passed through keeps its own."""
        if result.name in self._reserved or output in self.types:
            return result.name
        self.rename(result.name, output)
        return output

    def emit(self, operator: str, *inputs: Tensor, **named: AttributeValue) -> Tensor:
        """Apply an operator. Constant operands are folded where the result stays small; what has
        no elements is known."""
        entry = OPERATORS[operator]
        kinds = tuple(tensor.type for tensor in inputs)
        kind = entry.infer(kinds, named)
        arrays = [array for array in map(_known, inputs) if array is not None]
        whole = len(arrays) == len(inputs) and kind.elements > 0
        if whole and self._allowance.grants(kind, arrays, entry.flop(kinds, kind, named)):
            try:
                return self.constant(np.asarray(entry.reference(tuple(arrays), named)))
            except IndexError as error:
                raise ModelError(f"{operator}: {error}") from error
        return self.emit_several(operator, inputs, (kind,), **named)[0]

    def emit_several(
        self,
        operator: str,
        inputs: Sequence[Tensor],
        kinds: Sequence[TensorType],
        **named: AttributeValue,
    ) -> tuple[Tensor, ...]:
        """Add a node with results of the given types. Results without elements are known."""
        if all(kind.elements == 0 for kind in kinds):
            return tuple(self.constant(np.empty(k.shape, np.dtype(k.dtype))) for k in kinds)
        stem = "result" if operator == "opaque" else operator
        results = tuple(self._fresh(stem) for _ in kinds)
        outputs = tuple(result.name for result in results)
        self.types.update(zip(outputs, kinds, strict=True))
        self.nodes.append(
            Node(
                name=self._node_name(operator),
                operator=operator,
                inputs=tuple(tensor.name for tensor in inputs),
                outputs=outputs,
                attributes=attributes(**named),
            )
        )
        return results

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name wherever it is read or written."""
        self.types[new] = self.types.pop(old)
        if old in self.constants:
            self.constants[new] = self.constants.pop(old)
        self._taken.add(new)
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            inputs, outputs = (
                tuple(new if name == old else name for name in names)
                for names in (node.inputs, node.outputs)
            )
            if (inputs, outputs) != (node.inputs, node.outputs):
                self.nodes[index] = replace(node, inputs=inputs, outputs=outputs)
            if new in outputs:
                break

    def _fresh(self, stem: str) -> Tensor:
        name = fresh_name(f"{self.scope}/{stem}", self._taken, "_")
        self._taken.add(name)
        return Tensor(self, name)

    def _node_name(self, operator: str) -> str:
        name = self.scope
        if name in self._node_names:
            name = fresh_name(f"{name}/{operator}", self._node_names, "_")
        self._node_names.add(name)
        return name


def _known(tensor: Tensor) -> Array | None:
    """The values of a constant, or of a tensor without elements."""
    kind = tensor.type
    return tensor.value if kind.elements else np.empty(kind.shape, np.dtype(kind.dtype))


def axis_of(axis: int, rank: int, name: str) -> int:
    """The axis counted from the front; ModelError when there is none."""
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"node {quoted(name)}: axis {axis} is outside a tensor of rank {rank}")
    return axis % rank if rank else 0
