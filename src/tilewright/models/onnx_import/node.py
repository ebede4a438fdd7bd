"""One ONNX node to translate, its attributes read with types and defaults, and the graph under
construction that its translation adds to: typed tensors to compute with, constants folded as they
come.

A translation is a function of a node, registered under the names of its operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partialmethod
from typing import Any

import numpy as np
import onnx

from tilewright.core.errors import ModelError, quoted
from tilewright.graph.clean.edit import found, only_if
from tilewright.graph.clean.simplify import FoldingAllowance
from tilewright.graph.inputs import IndexRange
from tilewright.graph.network import Array, AttributeValue, Node, TensorType, attributes, fresh_name
from tilewright.graph.operators import OPERATORS
from tilewright.models.onnx_model import array_of


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
    def items(self) -> tuple[Tensor, ...] | None:
        """The tensors of a sequence, which has neither a type nor a value; else None."""
        return self.builder.sequences.get(self.name)

    def emit(self, operator: str, *others: Tensor | float, **named: AttributeValue) -> Tensor:
        """Apply an operator to this tensor and others."""
        operands = [one if isinstance(one, Tensor) else self.filled(one) for one in others]
        return self.builder.emit(operator, self, *operands, **named)

    __add__ = partialmethod(emit, "add")
    __sub__ = partialmethod(emit, "subtract")
    __mul__ = partialmethod(emit, "multiply")
    __truediv__ = partialmethod(emit, "divide")

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
    with them. `sequences` are the tensors of each sequence. `scope` is the ONNX node that what
    follows belongs to, `allowance` what may be folded; `examples` and `fixed` are those of `Graph`,
    of other tensors than inputs, too.
    """

    def __init__(self, reserved: set[str], allowance: FoldingAllowance) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.sequences: dict[str, tuple[Tensor, ...]] = {}
        self.examples: dict[str, Array] = {}
        self.fixed: set[str] = set()
        self.scope = ""
        self._allowance = allowance
        self._reserved = set(reserved)
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

    def sequence(self, items: Iterable[Tensor]) -> Tensor:
        """A sequence of tensors, which keep their names from here on."""
        result = self._fresh("sequence")
        self.sequences[result.name] = tuple(items)
        self._reserved.update(item.name for item in self.sequences[result.name])
        return result

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


TRAINING_HINT = "Export the network for inference: in PyTorch after `model.eval()`."


def shortest(value: float) -> float:
    """The shortest decimal that is the same float32."""
    return float(str(np.float32(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """A node to translate. `inputs` are tensors of our graph, None where an input is left out.

    `opset` is the version of the operator set of the node's domain; `types` are the static ones of
    the file's tensors. `carry` emits a node like this one as it is, as an opaque one, and gives the
    tensors of all its outputs; `inside` translates a branch or body of the node for given inputs,
    under a name, and gives the tensors of its outputs.
    """

    builder: GraphBuilder
    name: str
    opset: int
    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto
    types: Mapping[str, TensorType]
    carry: Callable[[OnnxNode], Sequence[Tensor | None]]
    inside: Callable[[onnx.GraphProto, Sequence[Tensor], str], tuple[Tensor, ...]]

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

    def known(self, index: int) -> Array:
        """The values of an input; NotApplicable when they are not known."""
        return found(self.input(index).value)

    def items(self, index: int) -> tuple[Tensor, ...]:
        """The tensors of a sequence; NotApplicable where they are not known."""
        return found(self.input(index).items)

    def known_integers(self, index: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The integers of an input, flattened, or the default when it is left out; NotApplicable
        when they are not known."""
        if default is not None and self.given(index) is None:
            return default
        return tuple(int(item) for item in self.known(index).reshape(-1))

    def declared(self, output: int = 0) -> tuple[int, ...]:
        """The static shape that the model tells of an output; NotApplicable where it tells none."""
        return found(self.types.get(self.proto.output[output])).shape

    def sizes(
        self, index: int, implied: Callable[[], Sequence[int]], *, exact: bool = True
    ) -> tuple[int, ...]:
        """The integers of an input; where they are not known, those that the shape of the result
        implies."""
        if self.value(index) is not None:
            return self.known_integers(index)
        return self.implied(index, implied(), exact=exact)

    def implied(self, index: int, values: Sequence[int], *, exact: bool = True) -> tuple[int, ...]:
        """These values, noted as what an input must hold; where not `exact`, as an example of it.
        NotApplicable where they are more or fewer than the input has."""
        tensor = self.input(index)
        only_if(tensor.type.elements == len(values))
        array = np.array(values, np.dtype(tensor.dtype)).reshape(tensor.shape)
        known = self.builder.examples.get(tensor.name)
        if tensor.name in self.builder.fixed:
            only_if(not exact or np.array_equal(np.asarray(known), array))
        elif exact or known is None:
            self.builder.examples[tensor.name] = array
        if exact:
            self.builder.fixed.add(tensor.name)
        return tuple(values)

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

    def body(self, name: str) -> onnx.GraphProto:
        """A branch or body; ModelError when there is none."""
        value = self.attributes.get(name)
        if not isinstance(value, onnx.GraphProto):
            raise ModelError(f"it has no graph {quoted(name)}")
        return value

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


MOST_CHOICES = 8
"""More results than this are not computed to choose one of them."""


def over_axes(
    axes: Tensor, x: Tensor, choices: Iterable[tuple[int, ...]], compute: Callable[..., Tensor]
) -> Tensor:
    """What `compute` gives for the axes of `x` that a tensor names when the network runs: computed
    for each of the `choices`, and the right one chosen. Axes of one element do not count.

    Each axis has a bit: bits = gather([1, 2, 4, …], axes), and a choice is known by their sum.
    Other sums become an index that no result has, which is an error when the network runs.
    """
    bits = [int(size != 1) << axis for axis, size in enumerate(x.shape)]
    coded = {sum(bits[axis] for axis in choice): choice for choice in choices}
    only_if(0 < len(coded) <= MOST_CHOICES)
    table = x.builder.constant(np.array(bits, np.int64))
    named = table.emit("gather", axes.reshape((axes.type.elements,)), axis=0)
    code = named.emit("reduce_sum", axes=(0,), keepdims=False)
    place = code.filled(len(coded))
    results: list[Tensor] = []
    for number, choice in coded.items():
        place = code.emit("equal", number).emit("where", code.filled(len(results)), place)
        result = compute(choice)
        results.append(result.reshape((1, *result.shape)))
    every = x.builder.emit("concat", *results, axis=0) if len(results) > 1 else results[0]
    return every.emit("gather", place, axis=0)


Translated = Tensor | Sequence[Tensor | None] | OnnxNode
Translate = Callable[[OnnxNode], Translated]
"""Emits nodes and gives each output's tensor, or gives a node to be carried along in place of this
one. Raises NotApplicable for a node that is carried along as it is."""

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


def number_limits(dtype: str) -> tuple[float, float]:
    """The smallest and the largest number of a type."""
    if "int" not in dtype:
        return -np.inf, np.inf
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def require_indices(known: Array | None, ranges: Sequence[IndexRange]) -> None:
    """Raise ModelError when indices that are known are out of range."""
    if known is None or not known.size:
        return
    columns: Any = known.reshape(-1, len(ranges))
    for values, valid in zip(columns.T, ranges, strict=True):
        wrong = values[(values < valid.lowest) | (values > valid.highest)]
        if wrong.size:
            raise ModelError(f"the index {np.ravel(wrong)[0]} is outside {valid}")
