"""Operators that ONNX defines by a function body, replaced by that body.

What a body is may depend on the types of a node's inputs and on its attributes. Each becomes a
function of the model itself, which onnx's inliner puts in the place of the call.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import onnx
import onnx.inliner
from onnx import helper

_DOMAIN = "tilewright.bodies"
_SINGLE, _HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
_LEFT = ("Bernoulli", "SequenceMap")
"""Their bodies draw random numbers or keep lists of tensors: errors are to name the operator that
people wrote."""


def expanded(model: onnx.ModelProto, translated: Container[str]) -> onnx.ModelProto:
    """The model with bodies in the place of nodes whose operators are not `translated`, itself
    where there is none of them. It is used up by this."""
    calls = list(_calls(model, translated))
    if not calls:
        return model
    told = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types = {value.name: value.type for value in (*told.input, *told.value_info, *told.output)}
    for tensor in told.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    sets = list(model.opset_import)
    for number, (node, schema, version) in enumerate(calls):
        body = _body(node, schema, version, types)
        if not body.node:  # of these types and attributes there is none
            continue
        body.domain, body.name = _DOMAIN, f"{node.op_type}_{number}"
        body.opset_import.extend(sets)
        model.functions.append(body)
        node.domain, node.op_type = _DOMAIN, body.name
    model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    result = onnx.inliner.inline_local_functions(model)
    del result.opset_import[:]
    result.opset_import.extend(sets)
    return result


def _calls(
    model: onnx.ModelProto, translated: Container[str]
) -> Iterator[tuple[onnx.NodeProto, Any, int]]:
    """The nodes to replace, with what ONNX says of their operators and the newest version of the
    body that the model's operator sets allow."""
    sets = {_plain(each.domain): each.version for each in model.opset_import}
    for node in model.graph.node:
        domain = _plain(node.domain)
        opset, full_name = sets.get(domain, 1), f"{domain}.{node.op_type}".removeprefix(".")
        if full_name in translated or full_name in _LEFT:
            continue
        if onnx.defs.has(node.op_type, opset, domain):
            schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
            of_types = schema.context_dependent_function_opset_versions
            every: list[int] = [*schema.function_opset_versions, *of_types]
            known = [each for each in every if each <= opset]
            if known:
                yield node, schema, max(known)


def _plain(domain: str) -> str:
    """A domain as ONNX looks for it: its own has two names."""
    return "" if domain == "ai.onnx" else domain


def _body(
    node: onnx.NodeProto, schema: Any, version: int, types: Mapping[str, onnx.TypeProto]
) -> onnx.FunctionProto:
    """The function that a node calls, without its operator sets; the defaults of its attributes
    are written into the node."""
    halves = [name for name in (*node.input, *node.output) if _is_half(types.get(name))]
    types = {**types, **{name: _retyped(types[name]) for name in halves}}
    given = {attribute.name for attribute in node.attribute}
    defaults = (each.default_value for each in schema.attributes.values())
    node.attribute.extend(each for each in defaults if each.name and each.name not in given)
    if schema.has_context_dependent_function:
        inputs = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        content = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), inputs
        )
    else:
        content = schema.get_function_with_opset_version(version)
    body = onnx.FunctionProto.FromString(content)
    del body.opset_import[:]
    _widen(body, node, halves)
    return body


def _is_half(kind: onnx.TypeProto | None) -> bool:
    return kind is not None and kind.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def _retyped(kind: onnx.TypeProto) -> onnx.TypeProto:
    """The same tensor in single precision."""
    single = onnx.TypeProto.FromString(kind.SerializeToString())
    single.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return single


def _widen(body: onnx.FunctionProto, node: onnx.NodeProto, halves: Container[str]) -> None:
    """Let a body compute in single precision between casts where a node is of halves, as ONNX
    Runtime does: rounded after every step, its result would be off by more than one rounding."""
    nodes = list(body.node)
    for place, name in enumerate(node.input[: len(body.input)]):
        if name in halves:
            inner, body.input[place] = body.input[place], f"{body.input[place]}_half"
            nodes.insert(0, helper.make_node("Cast", [body.input[place]], [inner], to=_SINGLE))
    for place, name in enumerate(node.output[: len(body.output)]):
        if name in halves:
            inner, body.output[place] = body.output[place], f"{body.output[place]}_half"
            nodes.append(helper.make_node("Cast", [inner], [body.output[place]], to=_HALF))
    del body.node[:]
    body.node.extend(nodes)
