"""What every ONNX model must be before anything else looks at it, and its constants as arrays.

ONNX Runtime refuses what is refused here. ONNX's own checker is asked about single nodes only: of
whole models it refuses more than any engine, such as weights whose file has a second hard link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.core.element_types import element_type, is_element_type
from tilewright.core.errors import ModelError, NotCompilable, printable, quoted
from tilewright.graph.network import Array, TensorType

_NAMES = {
    code: name
    for code in onnx.helper.get_all_tensor_dtypes()
    for name in (np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)).name,)
    if code != onnx.TensorProto.STRING and is_element_type(name)
}
"""Our names of ONNX's element types, as far as they are ours."""


def dtype_name(element_type: int, what: str) -> str:
    """Our name of an ONNX element type; ModelError when it is not one of ours."""
    if element_type == onnx.TensorProto.STRING:
        raise NotCompilable(f"{what} holds text, which is not supported")
    if element_type not in _NAMES:
        known = element_type in onnx.helper.get_all_tensor_dtypes()
        label = onnx.TensorProto.DataType.Name(element_type) if known else str(element_type)
        raise NotCompilable(f"{what} holds elements of type {label}, which is not supported")
    return _NAMES[element_type]


def constant_bytes(tensor: onnx.TensorProto, what: str) -> int:
    """How many bytes the shape and the type of a constant stand for. Raises ModelError."""
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{what} has the shape {list(tensor.dims)}, which is not possible")
    return prod(tensor.dims) * element_type(dtype_name(tensor.data_type, what)).bytes


def weights_bytes(model: onnx.ModelProto) -> int:
    """Of all constants of a model beside those in attributes, wherever they lie."""
    return sum(
        prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
        if tensor.data_type in _NAMES
    )


def check_constant(tensor: onnx.TensorProto) -> None:
    """Refuse a constant whose bytes do not fit its shape; those of types that are not ours stay
    unread."""
    what = f"constant {quoted(tensor.name)}"
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{what} has the shape {list(tensor.dims)}, which is not possible")
    if tensor.HasField("raw_data") and tensor.data_type in _NAMES:
        wanted, given = constant_bytes(tensor, what), len(tensor.raw_data)
        if wanted != given:
            raise ModelError(
                f"{what} is cut short or broken: {given} bytes for a shape {list(tensor.dims)} of "
                f"{wanted}"
            )


def array_of(tensor: onnx.TensorProto) -> Array:
    """The values of a constant inside the model; ModelError when they do not fit its shape."""
    what = f"constant {quoted(tensor.name)}"
    dtype_name(tensor.data_type, what)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{what} is cut short or broken: {error}") from error
    return np.asarray(array)


def static_type(value: onnx.ValueInfoProto) -> TensorType | None:
    """The type of a tensor when its shape is fully known and its elements are supported."""
    tensor = value.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    known = tensor.HasField("shape") and tensor.elem_type in _NAMES
    fixed = known and min(shape, default=0) >= 0
    return TensorType(tuple(shape), _NAMES[tensor.elem_type]) if fixed else None


OLDEST_OPSET = 9
"""Older operator sets are raised to this one before anything is translated."""
_MAIN_DOMAINS = ("", "ai.onnx")


def check_model(model: onnx.ModelProto, where: str) -> None:
    """Refuse a model whose operator sets, values, constants or nodes are not as ONNX has them.

    Raises ModelError that names what it is about; `where` says of which model.
    """
    domains = (entry.domain for entry in model.opset_import)
    if not all(isinstance(text, str) for text in (*domains, *_texts(model.graph))):
        raise ModelError(f"{where} has names that are no text (UTF-8): it may be damaged")
    _check_operator_sets(model, where)
    if not model.graph.output:
        raise ModelError(f"{where} has no outputs: it may be cut short")
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            raise ModelError(
                f"input {quoted(value.name)} of {where} holds text, which is not supported",
                hint="Keep what works on text in front of the network, and cut the network behind "
                "it.",
            )
    _check_types("input", model.graph.input, where)
    _check_types("tensor", (*model.graph.output, *model.graph.value_info), where)
    for tensor in model.graph.initializer:
        check_constant(tensor)
    _check_scales(model.graph, where)
    _check_once(model.graph, where)
    _check_nodes(model, where)
    _check_wiring(model.graph, where)
    for function in model.functions:
        _check_body(function, where)


def _check_scales(graph: onnx.GraphProto, where: str) -> None:
    """Refuse codes whose scale is no number: nothing that they stand for would be one."""
    own = onnx.TensorProto.DEFAULT
    constants = {each.name: each for each in graph.initializer if each.data_location == own}
    for index, node in enumerate(graph.node):
        scale = constants.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or scale is None:
            continue
        if not np.isfinite(array_of(scale).astype(np.float32)).all():
            raise ModelError(
                f"node {label_of(node, index)} of {where} has a scale that is not a finite number, "
                f"{quoted(scale.name)}: it may be damaged"
            )


def label_of(node: onnx.NodeProto, index: int) -> str:
    """What to call a node in messages: its name, else its operator and place."""
    return quoted(node.name or f"{node.op_type}_{index}")


def nested_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The branches and bodies inside a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def read_inside(node: onnx.NodeProto) -> list[str]:
    """The tensors around a node that the branches and bodies inside it read or hand on."""
    found: list[str] = []
    for body in nested_graphs(node):
        own = {value.name for value in (*body.input, *body.initializer)} | {""}
        own.update(name for inner in body.node for name in inner.output)
        read = [name for inner in body.node for name in (*inner.input, *read_inside(inner))]
        handed_on = [value.name for value in body.output]
        found += [name for name in (*read, *handed_on) if name not in own]
    return found


def _texts(graph: onnx.GraphProto) -> Iterator[object]:
    """Every name in a graph; protobuf gives bytes for what is no text."""
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    yield from (value.name for value in values)
    for value in (*graph.input, *graph.output):
        yield from (size.dim_param for size in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for nested in nested_graphs(node):
            yield from _texts(nested)


def opset_of(model: onnx.ModelProto) -> int | None:
    """The version of ONNX's own operator set that a model names, None where it names none."""
    versions = (entry.version for entry in model.opset_import if entry.domain in _MAIN_DOMAINS)
    return max(versions, default=None)


def _check_operator_sets(model: onnx.ModelProto, where: str) -> None:
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{where} has IR version {model.ir_version}; up to {onnx.IR_VERSION} can be read",
            hint="Save the model again with an older onnx, or update this one.",
        )
    opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if opset is not None and not 1 <= opset <= newest:
        raise ModelError(
            f"{where} uses ONNX operator set {opset}; 1 to {newest} can be read",
            hint="Export the model again with another operator set, or convert it with "
            "onnx.version_converter.",
        )
    twice = _twice(entry.domain or "ai.onnx" for entry in model.opset_import)
    if twice is not None:
        raise ModelError(f"{where} names two versions of the operator set {quoted(twice)}")


def _check_types(kind: str, values: Iterable[onnx.ValueInfoProto], where: str) -> None:
    """Element types out of the list of ONNX crash its helpers."""
    for value in values:
        element = value.type.tensor_type.elem_type
        known = element in onnx.TensorProto.DataType.values() and element
        if value.type.HasField("tensor_type") and not known:
            raise ModelError(
                f"{kind} {quoted(value.name)} of {where} has the element type {element}, which "
                "ONNX does not have"
            )


def _check_once(graph: onnx.GraphProto, where: str) -> None:
    """Every input, constant and output has a name and is listed once."""
    sparse = [tensor.values for tensor in graph.sparse_initializer]
    listed = {
        "input": graph.input,
        "constant": (*graph.initializer, *sparse),
        "output": graph.output,
    }
    for what, values in listed.items():
        names = [value.name for value in values]
        if "" in names:
            raise ModelError(f"one {what} of {where} has no name")
        twice = _twice(names)
        if twice is not None:
            raise ModelError(f"{where} lists the {what} {quoted(twice)} twice")


def _check_nodes(model: onnx.ModelProto, where: str) -> None:
    """Operators exist in the operator sets that the model names, with these operands and
    attributes."""
    sets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    local = {(function.domain, function.name) for function in model.functions}
    context = onnx.checker.C.CheckerContext()
    context.ir_version = min(max(model.ir_version, 3), onnx.IR_VERSION)
    context.opset_imports = {"": sets.get("ai.onnx", 1)}
    for index, node in enumerate(model.graph.node):
        label = f"node {label_of(node, index)} in {where}"
        if (node.domain or "ai.onnx") not in sets:
            raise ModelError(
                f"{label} uses operator {quoted(node.op_type)} of {quoted(node.domain)}, an "
                "operator set that the model does not name"
            )
        if node.domain not in _MAIN_DOMAINS or (node.domain, node.op_type) in local:
            continue
        if not onnx.defs.has(node.op_type, sets["ai.onnx"], ""):
            raise ModelError(
                f"{label} uses operator {quoted(node.op_type)}, "
                f"which ONNX operator set {sets['ai.onnx']} does not have"
            )
        deprecated = onnx.defs.get_schema(node.op_type, sets["ai.onnx"], "").deprecated
        if fault := "" if deprecated else _fault(node, context):
            raise ModelError(f"{label} is no {quoted(node.op_type)} as ONNX has it: {fault}")


def _fault(node: onnx.NodeProto, context: onnx.checker.C.CheckerContext) -> str:
    """What is wrong with a node of ONNX's own operators; empty where nothing is."""
    twice = _twice(attribute.name for attribute in node.attribute)
    if twice is not None:
        return f"attribute {quoted(twice)} is given twice"
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return f"attribute {quoted(attribute.name)} refers to one of a function, outside of any"
    try:
        if not any(nested_graphs(node)):
            onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        return printable(error)
    return ""


def _check_wiring(graph: onnx.GraphProto, where: str) -> None:
    """Every node reads what is there before it, as ONNX demands, and writes what is not."""
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    known.update(sparse.values.name for sparse in graph.sparse_initializer)
    written = {name for node in graph.node for name in node.output}
    for index, node in enumerate(graph.node):
        for name in node.input:
            if name not in known:
                later = "which it or a later node writes: nodes in a circle, or not in their order"
                raise ModelError(
                    f"node {label_of(node, index)} in {where} reads {quoted(name)}, "
                    f"{later if name in written else 'which nothing writes'}"
                )
        for name in filter(None, node.output):
            if name in known:
                raise ModelError(
                    f"node {label_of(node, index)} in {where} writes {quoted(name)}, which is "
                    "written before or comes from outside"
                )
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise ModelError(f"nothing in {where} writes the output {quoted(value.name)}")


def _check_body(function: onnx.FunctionProto, where: str) -> None:
    """A function reads its inputs and what it has written, and nothing around its calls."""
    known = {*function.input, ""}
    for node in function.node:
        for name in (*node.input, *read_inside(node)):
            if name not in known:
                raise ModelError(
                    f"function {quoted(function.name)} in {where} reads {quoted(name)} from "
                    "outside its body"
                )
        known.update(node.output)


def _twice(names: Iterable[str]) -> str | None:
    """A name that comes more than once, None where none does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
