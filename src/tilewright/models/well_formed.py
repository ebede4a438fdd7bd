"""What every ONNX model must be before anything else looks at it.

ONNX Runtime refuses what is refused here. ONNX's own checker is asked about single nodes only: of
whole models it refuses more than any engine, such as weights whose file has a second hard link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

from tilewright.core.errors import ModelError
from tilewright.models.naming import printable, quoted
from tilewright.models.weights import check_constant

OLDEST_OPSET = 9
_MAIN_DOMAINS = ("", "ai.onnx")
_TEXT_HINT = "Keep what works on text in front of the network, and cut the network behind it."


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
            what = f"input {quoted(value.name)} of {where}"
            raise ModelError(f"{what} holds text, which is not supported", hint=_TEXT_HINT)
    _check_types("input", model.graph.input, where)
    _check_types("tensor", (*model.graph.output, *model.graph.value_info), where)
    for tensor in model.graph.initializer:
        check_constant(tensor)
    _check_once(model.graph, where)
    _check_nodes(model, where)
    _check_wiring(model.graph, where)


def label_of(node: onnx.NodeProto, index: int) -> str:
    """What to call a node in messages: its name, else its operator and place."""
    return quoted(node.name or f"{node.op_type}_{index}")


def nested_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The branches and bodies inside a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


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


def _check_operator_sets(model: onnx.ModelProto, where: str) -> None:
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{where} has IR version {model.ir_version}; up to {onnx.IR_VERSION} can be read",
            hint="Save the model again with an older onnx, or update this one.",
        )
    versions = [entry.version for entry in model.opset_import if entry.domain in _MAIN_DOMAINS]
    if not versions:
        raise ModelError(f"{where} names no version of the ONNX operator set")
    opset, newest = max(versions), onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ModelError(
            f"{where} uses ONNX operator set {opset}; {OLDEST_OPSET} to {newest} can be read",
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
            what = f"{kind} {quoted(value.name)} of {where}"
            raise ModelError(f"{what} has the element type {element}, which ONNX does not have")


def _check_once(graph: onnx.GraphProto, where: str) -> None:
    """Every tensor has a name and comes from one place; every output is listed once."""
    weights = [tensor.name for tensor in graph.initializer]
    weights += [sparse.values.name for sparse in graph.sparse_initializer]
    inputs = [value.name for value in graph.input]
    outputs = [value.name for value in graph.output]
    for what, names in (("input", inputs), ("constant", weights), ("output", outputs)):
        if "" in names:
            raise ModelError(f"one {what} of {where} has no name")
        twice = _twice(names)
        if twice is not None:
            raise ModelError(f"{where} lists the {what} {quoted(twice)} twice")
    taken = {*weights, *inputs}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in taken:
                raise ModelError(
                    f"node {label_of(node, index)} in {where} writes {quoted(name)}, which is "
                    "written before or comes from outside"
                )
            taken.add(name)


def _check_nodes(model: onnx.ModelProto, where: str) -> None:
    """Operators exist in the operator sets that the model names, with these operands and
    attributes."""
    sets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    local = {(function.domain, function.name) for function in model.functions}
    context = onnx.checker.C.CheckerContext()
    context.ir_version = min(max(model.ir_version, 3), onnx.IR_VERSION)
    context.opset_imports = {"": sets["ai.onnx"]}
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
    """Every node reads what is there before it, as ONNX demands."""
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    known.update(sparse.values.name for sparse in graph.sparse_initializer)
    for index, node in enumerate(graph.node):
        for name in node.input:
            if name not in known:
                raise ModelError(
                    f"node {label_of(node, index)} in {where} reads {quoted(name)}, "
                    "which nothing before it writes"
                )
        known.update(node.output)
    for value in graph.output:
        if value.name not in known:
            raise ModelError(f"nothing in {where} writes the output {quoted(value.name)}")


def _twice(names: Iterable[str]) -> str | None:
    """A name that comes more than once, None where none does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
