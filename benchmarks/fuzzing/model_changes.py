"""Changes of a model that know what its parts are."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

Change = Callable[[onnx.ModelProto, Random], str]

_EXTENTS = (0, 1, 2, 3, 5, 7, 16, 17, 100, 1000, -1, -7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1)
_INTEGERS = (0, 1, -1, 2, 3, -2, 4, 8, 100, -100, 1 << 20, 1 << 31, -(1 << 31), (1 << 63) - 1)
_INTEGERS += (-(1 << 63),)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-7, 1e30, -1e30, 3.4e38, float("inf"))
_FLOATS += (float("-inf"), float("nan"))
_TEXTS = (
    "",
    "same",
    "x",
    "SAME_UPPER",
    "VALID",
    "linear",
    "cubic",
    "nearest",
    "reflect",
    "é\n",
    "DCR",
)
_NAMES = (
    "",
    "x",
    "y",
    "a/b",
    "../up",
    "ü",
    "a b",
    "\u202e",
    "n" * 3000,
    "0",
    "main",
    "class",
    "%s",
)
_OPERATORS = ("Relu", "Add", "MatMul", "Conv", "Gemm", "Softmax", "Transpose", "Reshape", "Cast")
_OPERATORS += (
    "Mul",
    "Concat",
    "Gather",
    "ReduceSum",
    "MaxPool",
    "Identity",
    "LSTM",
    "NoSuch",
    "If",
)
_OPERATORS += ("Shape", "Size", "Loop", "NonZero", "RandomNormal", "TopK", "Einsum", "Dropout")


def node_deleted(model: onnx.ModelProto, rng: Random) -> str:
    """What it wrote is written by nothing, or its first input stands in for it."""
    nodes = model.graph.node
    index = rng.randrange(len(nodes))
    gone = nodes[index]
    told = f"node {gone.op_type} deleted"
    if rng.random() < 0.7 and gone.input and gone.output:
        for node in nodes:
            for place, name in enumerate(node.input):
                if name in gone.output:
                    node.input[place] = gone.input[0]
        told += ", its input instead"
    del nodes[index]
    return told


def node_doubled(model: onnx.ModelProto, rng: Random) -> str:
    """The same node again, at another place or with another output."""
    nodes = list(model.graph.node)
    copy = onnx.NodeProto()
    copy.CopyFrom(rng.choice(nodes))
    if rng.random() < 0.5 and copy.output:
        copy.output[0] = f"{copy.output[0]}_again"
    nodes.insert(rng.randrange(len(nodes) + 1), copy)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return f"node {copy.op_type} doubled"


def node_moved(model: onnx.ModelProto, rng: Random) -> str:
    """Another order of nodes."""
    nodes = list(model.graph.node)
    nodes.insert(rng.randrange(len(nodes)), nodes.pop(rng.randrange(len(nodes))))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return "a node moved"


def rewired(model: onnx.ModelProto, rng: Random) -> str:
    """A node reads another tensor."""
    node = rng.choice(model.graph.node)
    if not node.input:
        return "nothing"
    tensors = [each for other in model.graph.node for each in (*other.input, *other.output)]
    tensors += [value.name for value in (*model.graph.input, *model.graph.initializer)]
    place, new = rng.randrange(len(node.input)), rng.choice((*tensors, ""))
    told = f"{node.op_type} reads {new!r} instead of {node.input[place]!r}"
    node.input[place] = new
    return told


def operands_changed(model: onnx.ModelProto, rng: Random) -> str:
    """One input or output more or less."""
    node = rng.choice(model.graph.node)
    ports = rng.choice((node.input, node.input, node.output))
    if ports and rng.random() < 0.5:
        del ports[rng.randrange(len(ports))]
        return f"{node.op_type} has an operand less"
    ports.insert(rng.randrange(len(ports) + 1), rng.choice((*ports, "", "new")))
    return f"{node.op_type} has an operand more"


def operator_changed(model: onnx.ModelProto, rng: Random) -> str:
    """A node computes something else, or belongs to another domain."""
    node = rng.choice(model.graph.node)
    if rng.random() < 0.2:
        node.domain = rng.choice(("com.microsoft", "ai.onnx", "ai.onnx.ml", "custom", "é"))
        return f"{node.op_type} of domain {node.domain!r}"
    before, node.op_type = node.op_type, rng.choice(_OPERATORS)
    return f"{before} becomes {node.op_type}"


def renamed(model: onnx.ModelProto, rng: Random) -> str:
    """A node, tensor, input or output is called otherwise, elsewhere or everywhere."""
    graph = model.graph
    named = [*graph.node, *graph.input, *graph.output, *graph.initializer]
    before, new = rng.choice(named).name, rng.choice(_NAMES)
    everywhere = rng.random() < 0.7
    for thing in named if everywhere else [rng.choice(named)]:
        if thing.name == before or not everywhere:
            thing.name = new
    for node in graph.node if everywhere else ():
        for ports in (node.input, node.output):
            ports[:] = [new if name == before else name for name in ports]
    return f"{before[:40]!r} renamed to {new[:40]!r}"


def extent_changed(model: onnx.ModelProto, rng: Random) -> str:
    """One extent of an input, an output or an inner tensor; or its rank."""
    graph = model.graph
    values = [*graph.input, *graph.input, *graph.output, *graph.value_info]
    if not values:
        return "nothing"
    value = rng.choice(values)
    dims = value.type.tensor_type.shape.dim
    drawn = rng.random()
    if drawn < 0.1:
        value.type.tensor_type.ClearField("shape")
        return f"{value.name[:40]} without a shape"
    if drawn < 0.25 or not dims:
        dims.add().dim_value = rng.choice(_EXTENTS)
        return f"{value.name[:40]} with an axis more"
    place = rng.randrange(len(dims))
    if drawn < 0.35:
        del dims[place]
        return f"{value.name[:40]} without axis {place}"
    if drawn < 0.45:
        dims[place].dim_param = rng.choice(("N", "", "é"))
        return f"axis {place} of {value.name[:40]} is free"
    dims[place].dim_value = rng.choice(_EXTENTS)
    return f"axis {place} of {value.name[:40]} is {dims[place].dim_value}"


def type_changed(model: onnx.ModelProto, rng: Random) -> str:
    """Another element type of an input, an output or an initializer, values left or not."""
    graph = model.graph
    kind = rng.choice((*TensorProto.DataType.values(), 99, -1))
    if graph.initializer and rng.random() < 0.5:
        tensor = rng.choice(graph.initializer)
        tensor.data_type = kind
        return f"initializer {tensor.name[:40]} said to be of type {kind}"
    values = [*graph.input, *graph.output]
    if not values:
        return "nothing"
    value = rng.choice(values)
    value.type.tensor_type.elem_type = kind
    return f"{value.name[:40]} of type {kind}"


def attribute_changed(model: onnx.ModelProto, rng: Random) -> str:
    """A value, a list, the type or the name of an attribute, or one more or less."""
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes or rng.random() < 0.15:
        node = rng.choice(model.graph.node)
        name = rng.choice(("axis", "axes", "perm", "to", "alpha", "group", "pads", "mode", "value"))
        value = rng.choice((rng.choice(_INTEGERS), rng.choice(_FLOATS), rng.choice(_TEXTS), [0, 1]))
        node.attribute.append(helper.make_attribute(name, value))
        return f"{node.op_type} with {name}={value!r}"
    node = rng.choice(nodes)
    place = rng.randrange(len(node.attribute))
    attribute = node.attribute[place]
    drawn = rng.random()
    if drawn < 0.1:
        del node.attribute[place]
        return f"{node.op_type} without an attribute"
    if drawn < 0.2:
        attribute.type = rng.choice(AttributeProto.AttributeType.values())
        return f"{attribute.name} of {node.op_type} said to be of type {attribute.type}"
    _vary(attribute, rng)
    return f"{attribute.name} of {node.op_type} changed"


def _vary(attribute: AttributeProto, rng: Random) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(_INTEGERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(_TEXTS).encode()
    elif attribute.type == AttributeProto.INTS:
        _vary_list(attribute.ints, rng, _INTEGERS)
    elif attribute.type == AttributeProto.FLOATS:
        _vary_list(attribute.floats, rng, _FLOATS)
    elif attribute.type == AttributeProto.TENSOR:
        _vary_tensor(attribute.t, rng)
    else:
        attribute.i = rng.choice(_INTEGERS)


def _vary_list(values: object, rng: Random, choices: tuple[int, ...] | tuple[float, ...]) -> None:
    given = list(values)  # pyright: ignore[reportArgumentType]
    drawn = rng.random()
    if drawn < 0.2 and given:
        del given[rng.randrange(len(given))]
    elif drawn < 0.4 or not given:
        given.insert(rng.randrange(len(given) + 1), rng.choice(choices))
    else:
        given[rng.randrange(len(given))] = rng.choice(choices)
    values[:] = given  # pyright: ignore[reportIndexIssue]


def _vary_tensor(tensor: TensorProto, rng: Random) -> None:
    """Values, extents, or the file its data are said to lie in."""
    drawn = rng.random()
    if drawn < 0.2:
        _vary_list(tensor.dims, rng, tuple(e for e in _EXTENTS if -(1 << 63) <= e < 1 << 63))
        return
    if drawn < 0.3:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=rng.choice(("", "weights", "/etc/passwd")))
        return
    try:
        array = np.array(numpy_helper.to_array(tensor))
        if not array.size:
            return
        choices = _FLOATS if array.dtype.kind == "f" else _INTEGERS
        with np.errstate(all="ignore"):
            value = np.array(rng.choice(choices)).astype(array.dtype)
        if rng.random() < 0.3:
            array[...] = value
        else:
            array.reshape(-1)[rng.randrange(array.size)] = value
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    except (ValueError, TypeError, NotImplementedError):
        tensor.raw_data = rng.randbytes(8)


def initializer_changed(model: onnx.ModelProto, rng: Random) -> str:
    """Values, extents or the place of a constant."""
    if not model.graph.initializer:
        return "nothing"
    tensor = rng.choice(model.graph.initializer)
    _vary_tensor(tensor, rng)
    return f"initializer {tensor.name[:40]} changed"


def initializer_moved(model: onnx.ModelProto, rng: Random) -> str:
    """A constant is gone, doubled, or becomes an input."""
    constants = model.graph.initializer
    if not constants:
        return "nothing"
    place = rng.randrange(len(constants))
    tensor = constants[place]
    name, drawn = tensor.name[:40], rng.random()
    if drawn < 0.3:
        constants.add().CopyFrom(tensor)
        return f"initializer {name} doubled"
    if drawn < 0.7:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        model.graph.input.append(value)
    if drawn > 0.5:
        del constants[place]
    return f"initializer {name} is an input, or gone"


def interface_changed(model: onnx.ModelProto, rng: Random) -> str:
    """Inputs or outputs more, less, or doubled."""
    graph = model.graph
    values = rng.choice((graph.input, graph.output, graph.output))
    drawn = rng.random()
    if values and drawn < 0.3:
        del values[rng.randrange(len(values))]
        return "an input or output less"
    if values and drawn < 0.5:
        values.add().CopyFrom(rng.choice(list(values)))
        return "an input or output doubled"
    names = [each for node in graph.node for each in (*node.input, *node.output)]
    values.add().name = rng.choice((*names, ""))
    return "an input or output more"


def versions_changed(model: onnx.ModelProto, rng: Random) -> str:
    """Another operator set, another version of the format."""
    if rng.random() < 0.2:
        model.ir_version = rng.choice((0, 1, 3, 7, 10, 13, 99, (1 << 62)))
        return f"ir_version {model.ir_version}"
    if model.opset_import and rng.random() < 0.8:
        entry = rng.choice(model.opset_import)
        entry.version = rng.choice(
            (0, 1, 7, 9, 11, 12, 13, 17, 18, 20, 21, 22, 23, 99, -1, 1 << 40)
        )
        return f"operator set {entry.version}"
    if rng.random() < 0.5:
        del model.opset_import[:]
        return "no operator set"
    model.opset_import.add(domain=rng.choice(("", "custom", "ai.onnx.ml")), version=1)
    return "an operator set more"


CHANGES: tuple[Change, ...] = (
    *(node_deleted, node_doubled, node_moved, rewired, rewired, operands_changed),
    *(operator_changed, renamed, extent_changed, extent_changed, extent_changed, type_changed),
    *(attribute_changed, attribute_changed, attribute_changed, initializer_changed),
    *(initializer_changed, initializer_moved, interface_changed, versions_changed),
)


def change(model: onnx.ModelProto, rng: Random) -> str:
    """One to three changes in place; what they were."""
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if model.graph.node:
            told.append(rng.choice(CHANGES)(model, rng))
    return "; ".join(told)
