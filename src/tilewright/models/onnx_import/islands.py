"""Islands: what cannot be compiled of a network, cut out as small ONNX models.

    conv → relu → NonZero → Gather → reduce → dense      NonZero has no kernel of a static shape
    conv → relu → [NonZero → Gather → reduce] → dense    what reads a shape that depends on data
                                                         goes along, until shapes are static again

Islands are as large as they must be, and larger only where two of them touch.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import helper, numpy_helper

from tilewright.core.element_types import element_type
from tilewright.core.errors import ModelError, quoted
from tilewright.graph.network import Node, TensorType, attributes
from tilewright.graph.operators import island_text
from tilewright.models.onnx_import.node import Tensor
from tilewright.models.onnx_import.opaque import EMBEDDED_ELEMENTS, value_info
from tilewright.models.onnx_model import nested_graphs, read_inside

Judge = Callable[[onnx.ModelProto], Sequence[TensorType]]
"""What an engine says of a small model: the types of its outputs; ModelError if it refuses it."""

_RANDOM = ("Random", "Bernoulli", "Multinomial")
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a node cannot be compiled. One that `follows` only reads what another node that cannot be
    compiled writes."""

    error: ModelError
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """Nodes of a model in order, what they read and what others read of them, and why they cannot
    be compiled."""

    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[str, ...]
    results: tuple[str, ...]
    refusals: tuple[ModelError, ...]

    @property
    def text(self) -> str:
        """Its nodes, and why it is there, as the attribute `island` has it."""
        words = dict.fromkeys(error.message for error in self.refusals)
        more = len(words) - _MOST_REASONS
        reason = "; ".join([*words][:_MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
        return island_text([node.name or node.op_type for node in self.nodes], reason)


def require_trusted(proto: onnx.NodeProto, refusal: ModelError) -> None:
    """Raise why a node cannot be compiled where no engine would give the same result again, or
    ONNX Runtime gives another one than ONNX defines."""
    trains = any(a.name == "training_mode" and a.i for a in proto.attribute)
    drops = proto.op_type == "Dropout" and any(proto.input[2:])
    if proto.op_type.startswith(_RANDOM) or trains or drops or _differs(proto):
        raise refusal
    for body in nested_graphs(proto):
        for node in body.node:
            require_trusted(node, refusal)


def _differs(proto: onnx.NodeProto) -> bool:
    """Whether ONNX Runtime is known to compute a node in another way than ONNX says: it forgets
    the shape of what is pooled back, and reads scales otherwise where corners are aligned."""
    corners = any(a.s == b"align_corners" for a in proto.attribute)
    scaled = proto.op_type == "Resize" and corners and any(proto.input[2:3])
    return scaled or (proto.op_type == "MaxUnpool" and any(proto.input[2:]))


def cut(
    nodes: Sequence[onnx.NodeProto],
    refusals: Mapping[int, Refusal],
    unknown: Collection[str],
    outputs: Iterable[str],
) -> list[onnx.NodeProto | Island]:
    """The nodes in an order in which everything is written before it is read, those with `refusals`
    (by index) in islands. Tensors of `unknown` shape stay inside one, unless they are outputs."""
    cutting = _Cutting(nodes)
    for index in refusals:
        for name in cutting.reads[index]:
            if name in unknown:
                cutting.join({index, cutting.writers[name]})
    cutting.untangle()
    cutting.join_neighbours(refusals)
    wanted = {*outputs}
    found: list[onnx.NodeProto | Island] = []
    for members in cutting.ordered():
        if members & refusals.keys():
            found.append(cutting.island(members, refusals, wanted))
        else:
            found += [nodes[index] for index in members]
    return found


@dataclass(slots=True)
class _Cutting:
    """Nodes by index, each in a group of its own until groups are joined."""

    nodes: Sequence[onnx.NodeProto]
    reads: list[tuple[str, ...]] = field(init=False)
    writers: dict[str, int] = field(init=False)
    groups: list[frozenset[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = [tuple(filter(None, (*n.input, *read_inside(n)))) for n in self.nodes]
        self.writers = {o: i for i, node in enumerate(self.nodes) for o in node.output if o}
        self.groups = [frozenset({index}) for index in range(len(self.nodes))]

    def join(self, indices: Collection[int]) -> None:
        """Make one group of all groups that hold one of these nodes."""
        joined = frozenset[int]().union(*(self.groups[index] for index in indices))
        for index in joined:
            self.groups[index] = joined

    def ordered(self) -> list[frozenset[int]]:
        """The groups, each behind those that it reads of. Raises CycleError where there is no such
        order; its second argument lists the groups of a cycle."""
        sorter: TopologicalSorter[frozenset[int]] = TopologicalSorter()
        for index, group in enumerate(self.groups):
            before = (self.groups[self.writers[n]] for n in self.reads[index] if n in self.writers)
            sorter.add(group, *(other for other in before if other is not group))
        return list(sorter.static_order())

    def untangle(self) -> None:
        """Take into a group what reads of it and is read by it, until there is an order."""
        while True:
            try:
                self.ordered()
            except CycleError as error:
                self.join(frozenset[int]().union(*error.args[1]))
            else:
                return

    def join_neighbours(self, refusals: Collection[int]) -> None:
        """Join groups of refused nodes where one reads of the other and an order remains."""
        for index in sorted(refusals):
            for name in self.reads[index]:
                writer = self.writers.get(name)
                if writer is None or self.groups[writer] is self.groups[index]:
                    continue
                if self.groups[writer] & set(refusals):
                    before = list(self.groups)
                    self.join({index, writer})
                    try:
                        self.ordered()
                    except CycleError:
                        self.groups = before

    def island(
        self, members: frozenset[int], refusals: Mapping[int, Refusal], wanted: set[str]
    ) -> Island:
        """A group as an island; `wanted` are the outputs of the network."""
        inside = sorted(members)
        own = {name for index in inside for name in self.nodes[index].output}
        others = (r for index, r in enumerate(self.reads) if index not in members)
        seen = wanted.union(*others)
        causes = [refusals[index] for index in inside if index in refusals]
        return Island(
            nodes=tuple(self.nodes[index] for index in inside),
            reads=tuple(dict.fromkeys(n for i in inside for n in self.reads[i] if n not in own)),
            results=tuple(n for i in inside for n in self.nodes[i].output if n and n in seen),
            refusals=tuple(
                cause.error
                for cause in causes
                if not cause.follows or all(other.follows for other in causes)
            ),
        )


def island_model(
    island: Island, given: Mapping[str, Tensor], source: onnx.ModelProto
) -> tuple[onnx.ModelProto, list[Tensor]]:
    """An island of a model as one of its own, and what the network gives it, in the order of its
    inputs. Of its results it says what the model says of them.

    Constants of a few elements and integers lie inside; other constants are inputs, so that the
    network's weights are stored once.
    """
    said = {value.name: value for value in (*source.graph.value_info, *source.graph.output)}
    graph = onnx.GraphProto(name=island.nodes[0].name or "island")
    inputs: dict[Tensor, str] = {}
    for name in island.reads:
        tensor = given[name]
        array = tensor.value
        if array is not None and (array.size <= EMBEDDED_ELEMENTS or array.dtype.kind in "iub"):
            graph.initializer.append(numpy_helper.from_array(array, name))
        elif tensor in inputs:
            graph.node.append(helper.make_node("Identity", [inputs[tensor]], [name]))
        else:
            _require_numpy(name, tensor.type)
            inputs[tensor] = name
            graph.input.append(value_info(name, tensor.type))
    graph.node.extend(island.nodes)
    graph.output.extend(said.get(name, onnx.ValueInfoProto(name=name)) for name in island.results)
    model = onnx.ModelProto(ir_version=source.ir_version, graph=graph)
    model.opset_import.extend(source.opset_import)
    return model, list(inputs)


def _require_numpy(name: str, kind: TensorType) -> None:
    if element_type(kind.dtype).library != "numpy":
        raise ModelError(f"tensor {quoted(name)} of {kind.dtype} cannot be handed to an engine")


def kinds_of_results(
    island: Island, known: Mapping[str, TensorType], told: Sequence[TensorType]
) -> Iterator[TensorType]:
    """The type of each result: as ONNX infers it, or else as the engine has `told`."""
    for name, kind in zip(island.results, told, strict=True):
        found = known.get(name, kind)
        if name not in known and not kind.shape:  # also what is told of an unknown rank
            raise ModelError(f"the number of axes of its result {quoted(name)} is not known")
        if found.dtype != kind.dtype:
            raise ModelError(f"{quoted(name)} is {kind}, but the model says {found}")
        if not found.is_static and not found.elements:
            raise ModelError(f"its result {quoted(name)} is {found}, which has no elements")
        _require_numpy(name, found)
        yield found


def as_island(node: Node, refusal: ModelError, judge: Judge) -> Node:
    """An opaque node as an island. Raises why it must be one where the engine refuses it."""
    model = onnx.load_model_from_string(b64decode(str(node.attribute("model"))))
    model.graph.name = node.name  # equal nodes must not share what is kept of a run
    for proto in model.graph.node:
        require_trusted(proto, refusal)
    try:
        judge(model)
    except ModelError as error:
        raise refused_by_all(refusal, error) from error
    text = b64encode(model.SerializeToString(deterministic=True)).decode("ascii")
    named = {**node.named, "model": text, "island": island_text((node.name,), refusal.message)}
    return replace(node, attributes=attributes(**named))


def refused_by_all(first: ModelError, then: ModelError) -> ModelError:
    """Why a node cannot be compiled, with the engine's own reason in the hint."""
    hint = f"ONNX Runtime does not compute it either: {then.message}"
    return ModelError(first.message, hint=f"{first.hint or ''} {hint}".lstrip())
