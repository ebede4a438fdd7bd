"""Language models with their cache: what a decoder's inputs and outputs are for, and the two
networks of static shapes that are made of it.

    prefill   tokens[1,T], mask[1,T], …, last             → logits[1,1,V], present[1,H,T,D], …
    step      tokens[1,1], mask[1,N], …, slot, past[1,H,N,D], …
                                                          → logits[1,1,V], present[1,H,N,D], …

A cache of N slots has room for N tokens. In a step, the concatenation of past and new becomes a
choice by place: slot number `slot` gets the new row, all others stay. Which slots are filled is
what the attention mask says. Attention does not mind the order of slots as long as positions are
inputs; a model that counts positions from the length of its cache does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.core.errors import ModelError, quoted
from tilewright.graph.network import fresh_name
from tilewright.models.input_shapes import keep_inputs, write_shapes

_TOKENS = ("input_ids", "inputs_embeds")
_MASK = "attention_mask"
_POSITIONS = ("position_ids", "cache_position")
_EXPORT_HINT = (
    "Export it with dynamic lengths, with its cache as inputs past_key_values.N.key and .value and "
    "outputs present.N.key and .value, and with the inputs input_ids, attention_mask and "
    "position_ids, as `optimum-cli export onnx --task text-generation-with-past` does."
)
_ROWWISE = ("Cast", "Identity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """An input that comes back as the output `present`, longer along `axis`."""

    past: str
    present: str
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRoles:
    """The roles of a decoder's inputs and outputs, by their names in the file.

    `tokens` is the input of token numbers, or of their embeddings; `mask` has a 1 for each slot
    that is filled; `positions` are inputs with the places of the tokens. Two inputs are added:
    `slot`, where a step writes its row of the caches, and `last`, the token of a prefill whose
    logits are wanted.
    """

    tokens: str
    mask: str
    positions: tuple[str, ...]
    logits: str
    caches: tuple[Cache, ...]
    slot: str
    last: str


def recognized(model: onnx.ModelProto) -> DecoderRoles:
    """What the inputs and outputs of a decoder are for. A cache is an input to which a
    concatenation adds rows, and whose result is an output, whatever their names are.

    Raises ModelError for models without a cache, and for inputs whose role is not known.
    """
    _look_through(model.graph)
    caches = tuple(cache for cache, _ in _concatenations(model.graph))
    if not caches:
        raise ModelError(
            "the model is no decoder with a cache: no input is concatenated with new rows and "
            "given back as an output",
            hint=_EXPORT_HINT,
        )
    known = {name for cache in caches for name in (cache.past, cache.present)}
    others = [value.name for value in model.graph.input if value.name not in known]
    results = [value.name for value in model.graph.output if value.name not in known]
    tokens = [name for name in others if name in _TOKENS]
    unknown = {*others} - {*_TOKENS, _MASK, *_POSITIONS}
    faults = [f"its input {quoted(name)} has no role that is known" for name in sorted(unknown)]
    if len(tokens) != 1:
        faults.append(f"it needs exactly one of the inputs {' and '.join(_TOKENS)}")
    if _MASK not in others:
        faults.append(f"it has no input {_MASK}, by which slots of a cache stay unseen")
    if not results:
        faults.append("it has no output but caches")
    faults += [
        f"its input {quoted(cache.past)} is given back twice"
        for number, cache in enumerate(caches)
        if cache.past in [other.past for other in caches[:number]]
    ]
    made = {name for node in model.graph.node for name in node.output}
    faults += [f"nothing computes its output {quoted(n)}" for n in results[:1] if n not in made]
    for fault in faults:
        raise ModelError(f"the decoder cannot be taken: {fault}", hint=_EXPORT_HINT)
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken.update(others, known)
    return DecoderRoles(
        tokens=tokens[0],
        mask=_MASK,
        positions=tuple(name for name in others if name in _POSITIONS),
        logits="logits" if "logits" in results else results[0],
        caches=caches,
        slot=fresh_name("slot", taken),
        last=fresh_name("last", taken),
    )


def prefill(model: onnx.ModelProto, decoder: DecoderRoles, tokens: int) -> onnx.ModelProto:
    """The network for a prompt of up to so many tokens, without a past. Shorter ones are filled up
    on the right; the logits are those of token number `last`. Raises ModelError for lengths that
    the model does not leave open."""
    made = _copied(model)
    graph, shapes = made.graph, _shapes(model, decoder, tokens, tokens)
    caches = {cache.past for cache in decoder.caches}
    for cache, node in _concatenations(graph):
        node.CopyFrom(helper.make_node("Identity", node.input[1:], node.output, node.name))
        if any(cache.past in other.input for other in graph.node):
            empty = [*shapes[cache.past]]
            empty[cache.axis] = 0
            (kind,) = (v.type.tensor_type for v in graph.input if v.name == cache.past)
            graph.initializer.append(helper.make_tensor(cache.past, kind.elem_type, empty, []))
    keep_inputs(made, [value.name for value in graph.input if value.name not in caches])
    _take_last(graph, decoder)
    _add_input(graph, decoder.last)
    _finish(made, decoder, shapes)
    return made


def step(model: onnx.ModelProto, decoder: DecoderRoles, capacity: int) -> onnx.ModelProto:
    """The network for one token and caches of so many slots. Raises ModelError for lengths that
    the model does not leave open."""
    made = _copied(model)
    graph, new = made.graph, list[onnx.NodeProto]()
    shapes = _shapes(model, decoder, 1, capacity)
    chosen: dict[int, str] = {}
    for cache, node in _concatenations(graph):
        behind = len(shapes[cache.past]) - cache.axis - 1
        if behind not in chosen:
            chosen[behind] = f"{decoder.slot}.{behind}"
            slots = np.arange(capacity).reshape(-1, *(1,) * behind)
            graph.initializer.append(numpy_helper.from_array(slots, f"{chosen[behind]}.all"))
            compared = [f"{chosen[behind]}.all", decoder.slot]
            new.append(helper.make_node("Equal", compared, [chosen[behind]]))
        _read_before(graph, node, cache, capacity, new)
        row = [chosen[behind], node.input[1], cache.past]
        node.CopyFrom(helper.make_node("Where", row, node.output, node.name))
    nodes = [*new, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    _add_input(graph, decoder.slot)
    _finish(made, decoder, shapes)
    return made


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _look_through(graph: onnx.GraphProto) -> None:
    """Let nodes read inputs directly, not through an `Identity` or a `Concat` of one operand."""
    same = {value.name: value.name for value in graph.input}
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = same.get(name, name)
        alone = node.op_type == "Identity" or (node.op_type == "Concat" and len(node.input) == 1)
        if alone and node.input[0] in same and node.output[0] not in outputs:
            same[node.output[0]] = node.input[0]


def _concatenations(graph: onnx.GraphProto) -> Iterator[tuple[Cache, onnx.NodeProto]]:
    """The caches, in the order of the inputs, and the nodes that add rows to them."""
    outputs = {value.name for value in graph.output}
    given_on = {
        node.input[0]: node.output[0]
        for node in graph.node
        if node.op_type == "Identity" and node.output[0] in outputs
    }
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type == "Concat" and len(node.input) == 2:
            readers.setdefault(node.input[0], []).append(node)
    for value in graph.input:
        for node in readers.get(value.name, []):
            present = node.output[0]
            present = present if present in outputs else given_on.get(present, "")
            if present:
                rank, (axis,) = len(value.type.tensor_type.shape.dim), node.attribute
                yield Cache(past=value.name, present=present, axis=axis.i % max(1, rank)), node


def _shapes(
    model: onnx.ModelProto, decoder: DecoderRoles, tokens: int, slots: int
) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs: batch 1, so many tokens, caches and mask of so many slots."""
    lengths = {decoder.mask: slots} | {cache.past: slots for cache in decoder.caches}
    axes = {cache.past: cache.axis for cache in decoder.caches}
    shapes: dict[str, tuple[int, ...]] = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        alone = len(dims) == 1  # positions without a batch
        axis = axes.get(value.name, 0 if alone else 1)
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        if axis >= len(sizes) or sizes[axis] is not None:
            raise ModelError(
                f"input {quoted(value.name)} of the decoder has the shape {_shown(dims)}: its "
                f"length, axis {axis}, is fixed",
                hint=_EXPORT_HINT,
            )
        sizes[axis] = lengths.get(value.name, tokens)
        if axis and sizes[0] in (None, 1):
            sizes[0] = 1
        if any(size is None for size in sizes) or (axis and sizes[0] != 1):
            raise ModelError(
                f"input {quoted(value.name)} of the decoder has the shape {_shown(dims)}, where "
                f"only batch, which is 1 here, and length, axis {axis}, may be open",
                hint=_EXPORT_HINT,
            )
        shapes[value.name] = tuple(size or 0 for size in sizes)
    return shapes


def _shown(dims: Sequence[onnx.TensorShapeProto.Dimension]) -> str:
    return f"[{','.join(dim.dim_param or str(dim.dim_value) for dim in dims)}]"


def _read_before(
    graph: onnx.GraphProto,
    concatenation: onnx.NodeProto,
    cache: Cache,
    capacity: int,
    new: list[onnx.NodeProto],
) -> None:
    """Let other readers of a past see one row less than there are slots, as the concatenation
    will have as many rows as slots. They ask for its length."""
    before = f"{cache.past}.before"
    others = [n for n in graph.node if cache.past in n.input and n != concatenation]
    for node in others:
        node.input[:] = [before if name == cache.past else name for name in node.input]
    if others:
        bounds = {"starts": 0, "ends": capacity - 1, "axes": cache.axis}
        for name, bound in bounds.items():
            array = np.array([bound])
            graph.initializer.append(numpy_helper.from_array(array, f"{before}.{name}"))
        operands = [cache.past, *(f"{before}.{name}" for name in bounds)]
        new.append(helper.make_node("Slice", operands, [before]))


def _take_last(graph: onnx.GraphProto, decoder: DecoderRoles) -> None:
    """Compute logits of one token only: it is picked as far up as operators treat tokens apart."""
    producers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    tensor, readers = decoder.logits, list[onnx.NodeProto]()
    while (node := producers.get(tensor)) is not None:
        product = node.op_type == "MatMul" and node.input[1] in constants
        if not product and node.op_type not in _ROWWISE:
            break
        readers, tensor = [node], node.input[0]
    source, picked = tensor, f"{tensor}.{decoder.last}"
    if not readers:
        source, picked = f"{tensor}.all", tensor
        readers = [producers[tensor]]
        readers[0].output[:] = [source if name == tensor else name for name in readers[0].output]
    else:
        readers[0].input[0] = picked
    place = list(graph.node).index(readers[0]) + (picked == tensor)
    graph.node.insert(place, helper.make_node("Gather", [source, decoder.last], [picked], axis=1))


def _add_input(graph: onnx.GraphProto, name: str) -> None:
    graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]))


def _finish(
    model: onnx.ModelProto, decoder: DecoderRoles, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Static inputs, and no outputs but logits and caches, in that order."""
    graph = model.graph
    values = {value.name: value for value in graph.output}
    wanted = (decoder.logits, *(cache.present for cache in decoder.caches))
    outputs = [onnx.ValueInfoProto.FromString(values[n].SerializeToString()) for n in wanted]
    del graph.output[:]
    graph.output.extend(outputs)
    write_shapes(model, {value.name: shapes.get(value.name, (1,)) for value in graph.input})
