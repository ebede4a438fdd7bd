"""The network around the kernels: Relax as glue.

    main(inputs..., constants...):
        arena = alloc_storage
        per call: views of its operands, guards of those that are indices,
                  then kernel(operands..., result)
        return outputs

Memory is planned by us, so the module goes to the VM without Relax's own planning or fusion, and
without instructions that free tensors one by one: all of them lie in the arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from tilewright.compiler.guards import index_guard
from tilewright.compiler.stopwatch import SYMBOL, mark_rows, stopwatch
from tilewright.core.forms import PLAIN
from tilewright.graph.indices import IndexRange, argument_uses
from tilewright.graph.plan import NetworkPlan, PlannedCall

MAIN, TIMED, CALLED = "main", "timed", "called"
"""Names of the network's functions."""
PIPELINE = (
    "LowerAllocTensor",
    "LowerRuntimeBuiltin",
    "ComputePrimValue",
    "VMShapeLower",
    "AttachGlobalSymbol",
)


class _Emitter:
    def __init__(self, builder: relax.BlockBuilder, plan: NetworkPlan) -> None:
        self.builder = builder
        self.plan = plan
        self.arena: relax.Var | None = None
        self.roots: dict[str, relax.Var] = {}
        self.views: dict[tuple[str, tuple[int, ...]], relax.Var] = {}
        self.guarded: set[tuple[str, tuple[IndexRange, ...]]] = set()

    def open_arena(self) -> None:
        """Allocate the arena once per run."""
        size = self.plan.arena_bytes
        if size:
            self.arena = self.builder.emit(
                relax.op.memory.alloc_storage(relax.ShapeExpr([size]), 0, "global", "uint8")
            )

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
        """A tensor's memory in the physical shape a kernel wants."""
        key = (name, shape)
        if key not in self.views:
            self.views[key] = self._view(name, shape, dtype)
        return self.views[key]

    def _view(self, name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
        place = self.plan.tensors[name]
        if place.root in self.roots:
            root = self.roots[place.root]
            if place.offset_bytes == 0 and _shape(root) == shape:
                return root
            offset = tirx.const(place.offset_bytes, "int64")
            view = relax.op.memory.view(root, relax.ShapeExpr(shape), dtype, offset)
            return self._zero_offset(self.builder.emit(view), place.offset_bytes)
        assert self.arena is not None
        offset_bytes = self.plan.memory[place.device].offsets[place.root] + place.offset_bytes
        tensor = self.builder.emit(
            relax.op.memory.alloc_tensor(
                self.arena, tirx.const(offset_bytes, "int64"), relax.ShapeExpr(shape), dtype
            )
        )
        return self._zero_offset(tensor, offset_bytes)

    def _zero_offset(self, tensor: relax.Var, offset_bytes: int) -> relax.Var:
        """Kernels want the offset in the pointer; on a CPU this moves it and copies nothing."""
        if offset_bytes == 0:
            return tensor
        return self.builder.emit(relax.op.memory.ensure_zero_offset(tensor))


def _shape(variable: relax.Var) -> tuple[int, ...]:
    return tuple(int(extent) for extent in variable.ty.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What functions of one network are made of: kernels by symbol, and what the builder calls
    them."""

    builder: relax.BlockBuilder
    plan: NetworkPlan
    kernels: dict[str, tirx.PrimFunc]
    functions: dict[str, relax.Expr]


def network_module(
    plan: NetworkPlan, kernels: dict[str, tirx.PrimFunc], *, timed: bool = False
) -> tvm.IRModule:
    """The Relax module of a plan with one lane, ready for the VM's code generation; `kernels` are
    its kernels by symbol.

    With `timed` it has two more functions, one that notes the time before and after every kernel,
    one that tells their symbols in order, with spaces between them:

        timed(inputs..., marks, constants...) -> marks
        called() -> symbols
    """
    builder = relax.BlockBuilder()
    functions = {
        symbol: builder.add_func(kernel.with_attr("global_symbol", symbol), symbol)
        for symbol, kernel in kernels.items()
    }
    parts = _Parts(builder=builder, plan=plan, kernels=kernels, functions=functions)
    _emit_function(parts, MAIN, None)
    if timed:
        clock = builder.add_func(stopwatch(len(plan.calls)), SYMBOL)
        _emit_function(parts, TIMED, clock)
        with builder.function(CALLED, []):
            symbols = " ".join(plan.symbol(call) for call in plan.calls)
            builder.emit_func_output(tvm.ir.StringImm(symbols))
    module = builder.get()
    passes = [getattr(relax.transform, name)() for name in PIPELINE]
    return tvm.transform.Sequential(passes)(module)


def _emit_function(parts: _Parts, name: str, clock: relax.Expr | None) -> None:
    """The whole network as a function; with a `clock` it gives marks of time, not its outputs."""
    builder, plan = parts.builder, parts.plan
    types = {tensor: planned.type for tensor, planned in plan.tensors.items()}
    inputs = [
        relax.Var(f"input_{i}", relax.TensorType(types[tensor].shape, types[tensor].dtype))
        for i, tensor in enumerate(plan.inputs)
    ]
    parameters = {
        c.name: relax.Var(c.name, relax.TensorType(c.shape, c.dtype)) for c in plan.constants
    }
    marks = relax.Var("marks", relax.TensorType((mark_rows(len(plan.calls)), 2), "int64"))
    noted = [] if clock is None else [marks]
    with builder.function(name, [*inputs, *noted, *parameters.values()]):
        emitter = _Emitter(builder, plan)
        emitter.roots.update(zip(plan.inputs, inputs, strict=True))
        emitter.open_arena()
        for tensor in dict.fromkeys(plan.outputs):
            if tensor not in emitter.roots and plan.tensors[tensor].root == tensor:
                emitter.roots[tensor] = _fresh(builder, types[tensor])
        for call in plan.calls:
            symbol = plan.symbol(call)
            operands = _operands(emitter, call, parts.kernels[symbol], parameters)
            _guard(emitter, call, operands)
            steps = [relax.Call(parts.functions[symbol], operands)]
            if clock is not None:
                steps = [relax.Call(clock, [marks]), *steps, relax.Call(clock, [marks])]
            for step in steps:
                builder.emit(step)
        results = noted or [
            emitter.tensor(tensor, PLAIN.physical_shape(types[tensor].shape), types[tensor].dtype)
            for tensor in plan.outputs
        ]
        builder.emit_func_output(relax.Tuple(results) if len(results) > 1 else results[0])


def _guard(emitter: _Emitter, call: PlannedCall, operands: Sequence[relax.Var]) -> None:
    """Check the indices that a call reads, each tensor once."""
    for indices in argument_uses(call.workload):
        key = (call.inputs[indices.port], indices.ranges)
        if indices.port in call.constants or key in emitter.guarded:
            continue
        emitter.guarded.add(key)
        operand = operands[indices.port]
        symbol = f"guard_{len(emitter.guarded)}"
        function = index_guard(
            symbol, _shape(operand), str(operand.ty.dtype.dtype), indices.ranges, call.name
        )
        guard = emitter.builder.add_func(function, symbol)
        emitter.builder.emit(relax.Call(guard, [operand]))


def _fresh(builder: relax.BlockBuilder, kind) -> relax.Var:
    """A graph output: memory of its own, so that it outlives the run."""
    shape = relax.ShapeExpr(PLAIN.physical_shape(kind.shape))
    return builder.emit(relax.op.builtin.alloc_tensor(shape, kind.dtype, 0))


def _operands(
    emitter: _Emitter, call: PlannedCall, kernel: tirx.PrimFunc, parameters: dict[str, relax.Var]
) -> list[relax.Var]:
    operands: list[relax.Var] = []
    names = [*call.inputs, call.output]
    for index, (name, buffer) in enumerate(zip(names, kernel.params, strict=True)):
        if index in call.constants:
            operands.append(parameters[call.constants[index]])
            continue
        shape = tuple(int(extent) for extent in buffer.shape)
        operands.append(emitter.tensor(name, shape, str(buffer.dtype)))
    return operands
