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

import tvm
from tvm import relax, tirx

from tilewright.compiler.guards import index_guard
from tilewright.core.forms import PLAIN
from tilewright.graph.indices import IndexRange, argument_uses
from tilewright.graph.plan import NetworkPlan, PlannedCall

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


def network_module(plan: NetworkPlan, kernels: dict[str, tirx.PrimFunc]) -> tvm.IRModule:
    """The Relax module of a plan with one lane, ready for the VM's code generation; `kernels` are
    its kernels by symbol."""
    types = {name: tensor.type for name, tensor in plan.tensors.items()}
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"input_{i}", relax.TensorType(types[name].shape, types[name].dtype))
        for i, name in enumerate(plan.inputs)
    ]
    parameters = {
        c.name: relax.Var(c.name, relax.TensorType(c.shape, c.dtype)) for c in plan.constants
    }
    functions = {
        symbol: builder.add_func(kernel.with_attr("global_symbol", symbol), symbol)
        for symbol, kernel in kernels.items()
    }
    with builder.function("main", [*inputs, *parameters.values()]):
        emitter = _Emitter(builder, plan)
        emitter.roots.update(zip(plan.inputs, inputs, strict=True))
        emitter.open_arena()
        for name in dict.fromkeys(plan.outputs):
            if name not in emitter.roots and plan.tensors[name].root == name:
                emitter.roots[name] = _fresh(builder, types[name])
        for call in plan.calls:
            symbol = plan.symbol(call)
            operands = _operands(emitter, call, kernels[symbol], parameters)
            _guard(emitter, call, operands)
            builder.emit(relax.Call(functions[symbol], operands))
        results = [
            emitter.tensor(name, PLAIN.physical_shape(types[name].shape), types[name].dtype)
            for name in plan.outputs
        ]
        builder.emit_func_output(relax.Tuple(results) if len(results) > 1 else results[0])
    module = builder.get()
    passes = [getattr(relax.transform, name)() for name in PIPELINE]
    return tvm.transform.Sequential(passes)(module)


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
