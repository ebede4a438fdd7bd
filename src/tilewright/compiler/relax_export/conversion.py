"""A module of Relax as an ONNX model: its function written call by call, the functions that it
calls in their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import relax, tirx

from tilewright.compiler.relax_export.calls import TRANSLATIONS, Call, dtype_of, sizes_of
from tilewright.compiler.relax_export.writer import OPSET, Value, Writer, element, refuse
from tilewright.core.errors import ModelError, NotCompilable, quoted

_GROUPS = ("convolutions", "creation", "elementwise", "images", "indexing", "normalisation",
           "pooling", "products", "reductions", "views")  # fmt: skip
for _group in _GROUPS:
    import_module(f"tilewright.compiler.relax_export.{_group}")

_MOST_CALLS = 64
"""Functions inside one another at most: one that calls itself has no end."""
_MOST_WRITTEN = 100_000
"""Calls at most once all functions are written out where they are called."""
_LISTED = 12


def to_onnx(module: tvm.IRModule, name: str, seed: int) -> tuple[onnx.ModelProto, str]:
    """The module as an ONNX model, and what there is to say about its weights.

    Parameters of its function are inputs, those behind the attribute `num_input` weights; weights
    without values are drawn at random. Sizes with names stay free. Raises ModelError with all that
    cannot be taken.
    """
    function = _entry(module)
    walk = _Walk(module=module, rng=np.random.default_rng(seed))
    inputs = walk.parameters(function)
    result = walk.result(function)
    outputs = walk.outputs(result, function.body.body.ty, "output")
    graph = helper.make_graph(
        walk.writer.nodes, name, inputs, outputs, walk.writer.constants, value_info=walk.known
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), walk.said


def _entry(module: tvm.IRModule) -> relax.Function:
    """The function to take: `main`, or the only one that is public."""
    functions = {
        variable.name_hint: function
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    }
    if "main" in functions:
        return functions["main"]
    public = {n: f for n, f in functions.items() if f.attrs and "global_symbol" in f.attrs}
    if len(public) == 1:
        return next(iter(public.values()))
    if not functions:
        raise ModelError("the module has no function of Relax")
    listed = ", ".join(map(quoted, public or functions))
    raise ModelError(
        f"the module has no function 'main' but {listed}: which one is meant?",
        hint="Keep one: tvm.IRModule({'main': module['NAME']})",
    )


@dataclass(kw_only=True)
class _Walk:
    """The way through a module. `values` says what stands for each variable, `refused` what cannot
    be taken, with the place where it came first, `lost` which variables hang on that."""

    module: tvm.IRModule
    rng: np.random.Generator
    writer: Writer = field(default_factory=Writer)
    values: dict[Any, Value] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)
    lost: set[Any] = field(default_factory=set)
    functions: dict[Any, relax.Function] = field(default_factory=dict)
    known: list[onnx.ValueInfoProto] = field(default_factory=list)
    said: str = ""
    written: int = 0

    def parameters(self, function: relax.Function) -> list[onnx.ValueInfoProto]:
        """The inputs of a function; its weights become constants."""
        given = (function.attrs or {}).get("num_input")
        count = len(function.params) if given is None else int(given)
        inputs: list[onnx.ValueInfoProto] = []
        for place, parameter in enumerate(function.params):
            name = self.writer.name(parameter.name)
            self.values[parameter] = name
            self.writer.scope = name
            if not isinstance(parameter.ty, relax.TensorType):
                raise ModelError(
                    f"parameter {quoted(name)} is {parameter.ty}, not a tensor, which is not taken"
                )
            try:
                if place < count:
                    inputs.append(_described(name, parameter.ty))
                    self._name_sizes(name, parameter.ty)
                else:
                    self.writer.constants.append(
                        numpy_helper.from_array(self._drawn(parameter.ty), name)
                    )
            except NotCompilable as error:
                raise ModelError(f"parameter {quoted(name)}: {error.message}") from error
        if count < len(function.params):
            weights = len(function.params) - count
            self.said = f"{weights} weights of the module have no values: they are random numbers."
        return inputs

    def _drawn(self, kind: Any) -> np.ndarray:
        """Random numbers in the place of a weight: of mean 0 with a variance that keeps the size of
        what goes through, or around 1 in a vector, which may be a scale or a variance."""
        shape = [size for size in sizes_of(kind) if isinstance(size, int)]
        if len(shape) < kind.ndim:
            raise refuse(f"a weight without values whose shape {kind.shape} is not fixed")
        dtype = helper.tensor_dtype_to_np_dtype(element(dtype_of(kind)))
        if dtype.kind in "iub":
            return self.rng.integers(0, 2, shape).astype(dtype)
        if len(shape) < 2:
            return self.rng.uniform(0.5, 1.5, shape).astype(dtype)
        spread = np.sqrt(max(np.prod(shape) / max(shape[0], 1), 1))
        return (self.rng.standard_normal(shape) / spread).astype(dtype)

    def _name_sizes(self, name: str, kind: Any) -> None:
        """Remember which sizes of a tensor have names."""
        for axis, size in enumerate(_sizes(kind) or ()):
            if isinstance(size, tvm.ir.Var) and size not in self.writer.symbols:
                made = self.writer.node("Shape", name, start=axis, end=axis + 1)
                self.writer.symbols[size] = made

    def result(self, function: relax.Function) -> Value:
        """Write what a function does. Raises ModelError with all that is not taken."""
        try:
            result = self.sequence(function.body, 0)
        except NotCompilable:
            result = ""
        self.refuse_all()
        return result

    def sequence(self, body: Any, depth: int) -> Value:
        """Write bindings in their order, and give what they result in."""
        if not isinstance(body, relax.SeqExpr):
            return self.value(body, depth)
        for block in body.blocks:
            for binding in block.bindings:
                self.binding(binding, depth)
        return self.value(body.body, depth)

    def binding(self, binding: Any, depth: int) -> None:
        """Write what a variable is bound to."""
        variable = binding.var
        self.writer.scope = variable.name
        self.lost.discard(variable)
        if isinstance(binding.value, relax.Function):
            self.functions[variable] = binding.value
        try:
            value = self.value(binding.value, depth)
        except NotCompilable as error:
            if error.message:
                self.refused[error.message] += 1
                self.places.setdefault(error.message, variable.name)
            self.lost.add(variable)
            value = ""
        self.values[variable] = value
        if value and isinstance(value, str):
            self._describe(value, variable.ty)
            self._name_sizes(value, variable.ty)

    def _describe(self, value: str, kind: Any) -> None:
        """Note a fixed type, so that the importer can hold it against its own."""
        nodes, padded = self.writer.nodes, self.writer.padded
        if not nodes or value not in nodes[-1].output or value in padded or _sizes(kind) is None:
            return
        if all(isinstance(size, tirx.IntImm) for size in kind.shape.values):
            self.known.append(_described(value, kind))

    def value(self, expression: Any, depth: int) -> Value:
        """What stands for an expression. Raises NotCompilable with why it is not taken, without
        words where that was said before."""
        for kind, method in _EXPRESSIONS.items():
            if isinstance(expression, kind):
                return method(self, expression, depth)
        return ""  # a number or a text: translations read them where they are needed

    def _variable(self, variable: Any, _depth: int) -> Value:
        if variable in self.lost:
            raise refuse("")
        return self.values.get(variable, "")

    def _tuple(self, several: Any, depth: int) -> Value:
        return [self.value(each, depth) for each in several.fields]

    def _field(self, field_of: Any, depth: int) -> Value:
        return self.value(field_of.tuple_value, depth)[int(field_of.index)]

    def _shape(self, shape: Any, _depth: int) -> Value:
        return self.writer.shape(shape.values)

    def _constant(self, constant: Any, _depth: int) -> Value:
        if constant not in self.values:
            array = constant.value.numpy()
            element(str(array.dtype))
            self.values[constant] = self.writer.constant(array, "constant")
        return self.values[constant]

    def _call(self, call: relax.Call, depth: int) -> Value:
        """A call of an operator, or of another function of the module, written out here."""
        self.written += 1
        if self.written > _MOST_WRITTEN:
            raise ModelError(
                f"with its functions written out the module has over {_MOST_WRITTEN:,} calls"
            )
        if isinstance(call.op, tvm.ir.Op):
            return self._operator(call, depth)
        function = call.op
        if isinstance(function, tvm.ir.GlobalVar):
            function = self.module[function]
        elif isinstance(function, tvm.ir.Var):
            function = self.functions.get(function)
        if not isinstance(function, relax.Function):
            raise refuse(f"a call of {quoted(str(call.op))}, which is no function of Relax")
        if depth > _MOST_CALLS:
            raise ModelError(f"the module's function {quoted(str(call.op))} calls itself")
        return self._written_out(function, [self.value(each, depth) for each in call.args], depth)

    def _written_out(self, function: relax.Function, values: list[Value], depth: int) -> Value:
        """A function in the place of its call. Sizes that its parameters name are those of this
        call; one inside another function knows that one's sizes, too."""
        self.values.update(zip(function.params, values, strict=True))
        outer, kinds = self.writer.symbols, [parameter.ty for parameter in function.params]
        own = {
            size for kind in kinds for size in _sizes(kind) or () if isinstance(size, tvm.ir.Var)
        }
        self.writer.symbols = {size: name for size, name in outer.items() if size not in own}
        try:
            for kind, value in zip(kinds, values, strict=True):
                if isinstance(value, str):
                    self._name_sizes(value, kind)
            return self.sequence(function.body, depth + 1)
        finally:
            self.writer.symbols = outer

    def _operator(self, call: relax.Call, depth: int) -> Value:
        name = call.op.name
        if name in _FOREIGN:
            called = getattr(call.args[0], "name_hint", None) or call.args[0].global_symbol
            raise refuse(f"{name} of {quoted(called)}, a kernel and no operator")
        if name in _SILENT:
            return []
        if name not in TRANSLATIONS:
            raise refuse(name)
        scope = self.writer.scope
        values = [self.value(each, depth) for each in call.args]
        self.writer.scope = scope
        try:
            result = TRANSLATIONS[name](Call(writer=self.writer, call=call, values=values))
        except NotCompilable as error:
            raise refuse(f"{name}, where {error.message}") from error
        if not self.writer.padded.isdisjoint(_tensors(values)):
            self.writer.padded.update(_tensors(result))
        return result

    def _branches(self, choice: relax.If, depth: int) -> Value:
        """Both branches, as graphs inside a node."""
        condition, scope = self.value(choice.cond, depth), self.writer.scope
        graphs: list[onnx.GraphProto] = []
        for body in (choice.true_branch, choice.false_branch):
            outside = self.writer.nodes, self.writer.symbols, self.known
            self.writer.nodes, self.writer.symbols = [], dict(self.writer.symbols)
            self.known = []
            results = self.outputs(self.value(body, depth), body.ty, scope)
            graphs.append(helper.make_graph(self.writer.nodes, scope, [], results))
            self.writer.nodes, self.writer.symbols, self.known = outside
        self.writer.scope, count = scope, len(graphs[0].output)
        named = {"then_branch": graphs[0], "else_branch": graphs[1]}
        return _nested(iter(self.writer.several("If", count, condition, **named)), choice.ty)

    def outputs(self, result: Value, kind: Any, name: str) -> list[onnx.ValueInfoProto]:
        """The tensors of a result, in their order, under names of their own."""
        found = list(_flat(result, kind))
        described: list[onnx.ValueInfoProto] = []
        for place, (value, each) in enumerate(found):
            self.writer.scope = name if len(found) == 1 else f"{name}_{place}"
            sizes = value not in self.writer.padded
            described.append(_described(self.writer.node("Identity", value), each, sizes=sizes))
        return described

    def refuse_all(self) -> None:
        """Raise ModelError where anything was not taken, with all of it."""
        if not self.refused:
            return
        listed = [
            f"{what} ({count}×, first for {quoted(self.places[what])})"
            for what, count in self.refused.most_common(_LISTED)
        ]
        more = len(self.refused) - len(listed)
        also = f"; and {more} more" if more else ""
        raise ModelError(
            "the module holds what cannot be taken: " + "; ".join(listed) + also,
            hint="Bring the module as it is before passes turn operators into kernels "
            "(LegalizeOps, FuseOps, …); docs/reference/models.md lists the operators.",
        )


_FOREIGN = {
    f"relax.{name}"
    for name in ("call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed",
                 "call_pure_packed", "call_inplace_packed", "call_py_func")
}  # fmt: skip
_SILENT = ("relax.print", "relax.assert_op")


_EXPRESSIONS: dict[type, Any] = {
    tvm.ir.Var: _Walk._variable,
    tvm.ir.GenericConst: _Walk._constant,
    relax.ShapeExpr: _Walk._shape,
    relax.Tuple: _Walk._tuple,
    relax.TupleGetItem: _Walk._field,
    relax.SeqExpr: _Walk.sequence,
    relax.If: _Walk._branches,
    relax.Call: _Walk._call,
}


def _sizes(kind: Any) -> Sequence[Any] | None:
    """The sizes of a tensor's type, None where there are none."""
    shape = kind.shape if isinstance(kind, relax.TensorType) else None
    return shape.values if isinstance(shape, relax.ShapeExpr) else None


def _described(name: str, kind: Any, *, sizes: bool = True) -> onnx.ValueInfoProto:
    """A tensor's type in ONNX, as far as it is known, or without its sizes."""
    if not isinstance(kind, relax.TensorType):
        raise ModelError(f"a result of the module is {kind}, not a tensor, which is not taken")
    known = _sizes(kind) if sizes else None
    shape = [None] * max(kind.ndim, 0) if known is None else [_size(each) for each in known]
    given = None if kind.ndim < 0 else shape
    return helper.make_tensor_value_info(name, element(dtype_of(kind)), given)


def _size(size: Any) -> int | str | None:
    if isinstance(size, tirx.IntImm):
        return int(size)
    return size.name if isinstance(size, tvm.ir.Var) else None


def _tensors(value: Value | Sequence[Value]) -> list[str]:
    """The tensors of a value."""
    return [value] if isinstance(value, str) else [t for each in value for t in _tensors(each)]


def _flat(value: Value, kind: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a value with their types."""
    if isinstance(value, str):
        yield value, kind
        return
    for each, field_kind in zip(value, kind.fields, strict=True):
        yield from _flat(each, field_kind)


def _nested(names: Iterator[str], kind: Any) -> Value:
    """Tensors in the tuples of a type."""
    if hasattr(kind, "fields"):
        return [_nested(names, each) for each in kind.fields]
    return next(names)
