"""Operators outside the vocabulary: from a small ONNX model to one TIR function.

ONNX node → Relax → legalised to several TIR functions → one of them, `main`
"""

from __future__ import annotations

import io
from base64 import b64decode
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


def unsupported(
    graph: Graph, target: str = '{"kind": "llvm"}'
) -> dict[str, tuple[str, str | None]]:
    """What TVM's importer does not take of a graph of opaque nodes: message and hint by name."""
    refused: dict[str, tuple[str, str | None]] = {}
    for node in graph.nodes:
        try:
            for index in range(len(node.outputs)):
                import_opaque(str(node.attribute("model")), index, target)
        except ModelError as error:
            refused[node.name] = f"node {node.name!r}: {error.message}", error.hint
    return refused


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
    merged = relax.transform.DeadCodeElimination(["whole"])(merged)
    merged = relax.transform.FuseTIR()(merged)
    (block,) = merged["whole"].body.blocks
    call = block.bindings[0].value
    return merged[call.args[0]].with_attr("global_symbol", "main").with_attr("tirx.noalias", True)


@relax.expr_functor.mutator
class _Merge(relax.PyExprMutator):
    """Rewrites the importer's `main` into one primitive function that FuseTIR can merge.

    A `visit` is called by TVM, which makes other errors of those that it raises.
    """

    def __init__(self, module: tvm.IRModule, operator: str) -> None:
        super().__init__(module)
        self._source = module["main"]
        self._operator = operator
        self._largest = 0

    def module(self, output_index: int, dtype: str) -> tvm.IRModule:
        """`whole` calls the primitive function; one output is computed, as `dtype`."""
        source, builder = self._source, self.builder_
        bindings = [binding for block in source.body.blocks for binding in block.bindings]
        if not all(isinstance(it, relax.VarBinding) and _is_static(it.value) for it in bindings):
            raise ModelError(
                f"operator {self._operator} has no kernel of static shape in TVM",
                hint="The shape of its result depends on the data; cut the network before it.",
            )
        with builder.function("fused", source.params, attrs={"Primitive": True}):
            with builder.dataflow():
                for binding in bindings:
                    self.visit_binding(binding)
                output = builder.emit_output(self._output(output_index, dtype))
            builder.emit_func_output(output)
        if self._largest > LARGEST_CONSTANT:
            raise ModelError(
                f"operator {self._operator} holds a constant of {self._largest} elements, "
                f"more than {LARGEST_CONSTANT}"
            )
        inner = builder.get().get_global_var("fused")
        with builder.function("whole", source.params):
            with builder.dataflow():
                result = builder.emit_output(relax.Call(inner, source.params))
            builder.emit_func_output(result)
        return builder.get()

    def _output(self, output_index: int, dtype: str) -> Any:
        result = self.visit_expr(self._source.body.body)
        if isinstance(result.ty, relax.TupleType):
            result = self.builder_.emit(relax.TupleGetItem(result, output_index))
        if str(result.ty.dtype) != dtype:
            return self.builder_.emit_te(topi.cast, result, dtype)
        if any(result.same_as(param) for param in self._source.params):
            return self.builder_.emit_te(topi.identity, result)
        return result

    def visit_generic_const_(self, op: Any) -> Any:
        """A constant becomes what a function stores, unless it is too large."""
        array = op.value.numpy()
        self._largest = max(self._largest, array.size)
        if array.size > LARGEST_CONSTANT:
            return op
        function = self.builder_.add_func(_filler(array, "constant"), "constant")
        kind = relax.TensorType(array.shape, str(array.dtype))
        return self.builder_.emit(relax.call_tir(function, [], kind))


def _is_static(value: Any) -> bool:
    """Whether a value is made of tensors by functions whose results have static shapes."""
    if not isinstance(value, relax.Call):
        return isinstance(value, (relax.Tuple, relax.TupleGetItem, relax.Var, tvm.ir.GenericConst))
    if value.op != tvm.ir.Op.get("relax.call_tir") or len(value.args) > 2:
        return False
    kinds = getattr(value.ty, "fields", [value.ty])
    return all(isinstance(extent, tirx.IntImm) for kind in kinds for extent in kind.shape)


def _filler(array: np.ndarray, name: str) -> tirx.PrimFunc:
    """A function that stores a constant."""
    dtype = str(array.dtype)
    with IRBuilder() as builder, script.prim_func(s_tir=True):
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
