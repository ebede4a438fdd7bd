"""Operators outside the vocabulary: from a small ONNX model to one TIR function.

ONNX node → Relax → legalised to several TIR functions → one of them, `main`
"""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx, topi
from tvm.ir.transform import Sequential
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.core.errors import ModelError, TilewrightError
from tilewright.graph.network import Graph

LARGEST_CONSTANT = 1 << 14
"""Elements a constant inside the model may have: its values become stores."""

_FAILURES = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    RuntimeError,
    NotImplementedError,
)


def check_supported(graph: Graph, target: str = '{"kind": "llvm"}') -> None:
    """Try every opaque node of a graph; raises ModelError naming operator and node."""
    for node in graph.nodes:
        if node.operator == "opaque":
            try:
                for index in range(len(node.outputs)):
                    import_opaque(str(node.attribute("model")), index, target)
            except ModelError as error:
                raise ModelError(f"node {node.name!r}: {error.message}", hint=error.hint) from error


def kernel_function(named: Mapping[str, Any], target: str) -> tirx.PrimFunc:
    """The TIR function of an opaque step, from its attributes."""
    return import_opaque(str(named["model"]), int(named["output_index"]), target)


@lru_cache(maxsize=64)
def import_opaque(model: str, output_index: int, target: str) -> tirx.PrimFunc:
    """One unscheduled TIR function that computes one output of a single-node ONNX model.

    `model` is base64 text; parameters are the model's inputs in order, then the result. Raises
    ModelError when TVM does not know the operator or the result's shape depends on data.
    """
    import onnx

    proto = onnx.ModelProto.FromString(b64decode(model))
    node = proto.graph.node[0]
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    try:
        # the importer prints when it fails
        with redirect_stdout(io.StringIO()):
            return _imported(proto, output_index, target)
    except TilewrightError:
        raise
    except _FAILURES as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"operator {name} cannot be compiled: {lines[-1].strip() if lines else error!r}",
            hint="Neither tilewright nor TVM's importer handles it; cut the network before it.",
        ) from error


def _imported(proto: Any, output_index: int, target: str) -> tirx.PrimFunc:
    from onnx.helper import tensor_dtype_to_np_dtype
    from tvm.relax.frontend.onnx import from_onnx

    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(),
        relax.transform.FoldConstant(),
    ]
    module = from_onnx(proto, keep_params_in_input=False)
    with tvm.target.Target(target):
        module = Sequential(passes)(module)
    code = proto.graph.output[output_index].type.tensor_type.elem_type
    dtype = str(np.dtype(tensor_dtype_to_np_dtype(code)))
    merged = _Merge(module, proto.graph.node[0].op_type).module(output_index, dtype)
    merged = relax.transform.DeadCodeElimination(["main"])(merged)
    merged = relax.transform.FuseTIR()(merged)
    bindings = [binding for block in merged["main"].body.blocks for binding in block.bindings]
    call = next(it.value for it in bindings if isinstance(it.value, relax.Call))
    return merged[call.args[0]].with_attr("global_symbol", "main").with_attr("tirx.noalias", True)


class _Merge:
    """Rewrites the importer's `main` into one primitive function that FuseTIR can merge."""

    def __init__(self, module: tvm.IRModule, operator: str) -> None:
        self._source = module
        self._operator = operator
        self._builder = relax.BlockBuilder()
        self._names: dict[str, Any] = {}
        self._values: dict[Any, Any] = {}

    def module(self, output_index: int, dtype: str) -> tvm.IRModule:
        """`main` calls the primitive function; one output is computed, as `dtype`."""
        source, builder = self._source["main"], self._builder
        params = [relax.Var(f"i{i}", p.ty) for i, p in enumerate(source.params)]
        self._values.update(zip(source.params, params, strict=True))
        with builder.function("fused", params, attrs={"Primitive": True}):
            with builder.dataflow():
                output = builder.emit_output(self._output(source.body, output_index, dtype))
            builder.emit_func_output(output)
        inner = builder.get().get_global_var("fused")
        params = [relax.Var(f"p{i}", p.ty) for i, p in enumerate(source.params)]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(relax.Call(inner, params))
            builder.emit_func_output(result)
        return builder.get()

    def _output(self, body: Any, output_index: int, dtype: str) -> Any:
        params = list(self._values.values())
        for binding in (binding for block in body.blocks for binding in block.bindings):
            if not isinstance(binding, relax.VarBinding):
                self._refuse()
            self._values[binding.var] = self._of(binding.value)
        result = self._of(body.body)
        if isinstance(result, list):
            result = result[output_index]
        if str(result.ty.dtype) != dtype:
            return self._builder.emit_te(topi.cast, result, dtype)
        if any(result.same_as(param) for param in params):
            return self._builder.emit_te(topi.identity, result)
        return result

    def _of(self, value: Any) -> Any:
        if isinstance(value, relax.Tuple):
            return [self._of(item) for item in value.fields]
        if isinstance(value, relax.TupleGetItem):
            return self._of(value.tuple_value)[value.index]
        if isinstance(value, relax.Var):
            return self._values[value]
        if isinstance(value, tvm.ir.GenericConst):
            return self._constant(value.value.numpy())
        if isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir"):
            return self._call(value)
        return self._refuse()

    def _call(self, call: relax.Call) -> Any:
        if len(call.args) > 2:
            self._refuse()
        operands = [self._of(item) for item in call.args[1].fields]
        out = list(call.ty_args)
        kinds = list(out[0].fields) if isinstance(out[0], relax.TupleType) else out
        if any(not isinstance(extent, tirx.IntImm) for kind in kinds for extent in kind.shape):
            self._refuse()
        name = call.args[0].name_hint
        function = self._function(name, self._source[name])
        made = self._builder.emit(relax.call_tir(function, operands, kinds))
        if len(kinds) == 1:
            return made
        return [self._builder.emit(relax.TupleGetItem(made, index)) for index in range(len(kinds))]

    def _function(self, name: str, function: Any) -> Any:
        """What the builder calls a function, which it gets once."""
        if name not in self._names:
            self._names[name] = self._builder.add_func(function, name)
        return self._names[name]

    def _constant(self, array: np.ndarray) -> Any:
        if array.size > LARGEST_CONSTANT:
            raise ModelError(
                f"operator {self._operator} holds a constant of {array.size} elements, "
                f"more than {LARGEST_CONSTANT}"
            )
        name = f"constant{len(self._names)}"
        function = self._function(name, _filler(array, name))
        kind = relax.TensorType(array.shape, str(array.dtype))
        return self._builder.emit(relax.call_tir(function, [], kind))

    def _refuse(self) -> Any:
        raise ModelError(
            f"operator {self._operator} has no kernel of static shape in TVM",
            hint="The shape of its result depends on the data; cut the network before it.",
        )


def _filler(array: np.ndarray, name: str) -> tirx.PrimFunc:
    """A function that stores a constant."""
    dtype = str(array.dtype)
    with IRBuilder() as builder:
        with script.prim_func(s_tir=True):
            script.func_name(name)
            script.func_attr({"tirx.noalias": True})
            shape = [tirx.const(extent, "int64") for extent in array.shape]
            output = script.arg("output", script.buffer(shape, dtype))
            with script.sblock("root"), script.sblock(name):
                script.reads([])
                script.writes([output[tuple(slice(0, n) for n in array.shape)]])
                for index, item in np.ndenumerate(array):
                    at = [tirx.const(i, "int64") for i in index]
                    script.buffer_store(output, tirx.const(item.item(), dtype), at)
        return builder.get()
