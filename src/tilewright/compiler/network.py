"""Compiling a whole network: Relax as glue around the kernels, and what is written of it.

    main(inputs..., constants...):
        arena = alloc_storage
        per call: views of its operands, guards of those that are indices,
                  then kernel(operands..., result)
        return outputs

A network that is timed call by call, in lanes or where no Python is near, has one function more,
which notes the time around each call (`graph/marks.py`).

Memory is planned by us, so the module goes to the VM without Relax's own planning or fusion, and
without instructions that free tensors one by one: all of them lie in the arena.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import tvm
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.compiler.build import (
    WorkspaceReader,
    argument_types,
    compiled_for,
    given,
    instructed,
    kernel_module,
    pooled,
    registered,
)
from tilewright.compiler.builders.base import CalledInNetworks
from tilewright.compiler.builders.registry import builder_for
from tilewright.compiler.side_by_side import (
    Kind,
    LaneCall,
    Parts,
    TeamCalls,
    on_one_thread,
    parts_of,
    region,
)
from tilewright.compiler.stopwatch import SYMBOL, stopwatch
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Target
from tilewright.core.weights import WEIGHTS
from tilewright.graph.arrays import map_array
from tilewright.graph.inputs import IndexRange, argument_uses
from tilewright.graph.marks import Marks
from tilewright.graph.plan import MAIN as MAIN_LANE
from tilewright.graph.plan import NetworkPlan, PlannedCall
from tilewright.graph.regions import Region, steps_of
from tilewright.kernels.base import Workspaces

LIBRARY = "model.so"
MAIN, TIMED, CALLED = "main", "timed", "called"
"""Names of the network's functions."""
OUTSIDE = "is given an index that is not in"
"""What the message of a guard says, where its kind does not come along."""
_ERROR = "IndexError"
"""What a guard that fails raises in the caller."""
PIPELINE = (
    "LowerAllocTensor",
    "LowerRuntimeBuiltin",
    "ComputePrimValue",
    "VMShapeLower",
    "AttachGlobalSymbol",
)


def compile_network(
    plan: NetworkPlan, target: Target, *, timed: bool = False
) -> tuple[relax.VMExecutable, dict[str, Workspaces]]:
    """Build all kernels and the glue of a plan on one device; returns the executable and the
    kernels' workspaces by symbol. `timed` as in `network_module`.

    Beside its main lane a plan may have lanes of fewer cores, as `graph.regions` has them.
    """
    resources = plan.main.resources
    calls = {plan.symbol(call): call for call in reversed(plan.calls)}
    checked = _reading_given(plan)
    kernels = {
        symbol: _kernel(calls[symbol], plan, target, checked=symbol in checked)
        for symbol in plan.symbols.values()
        if outside(calls[symbol]) is None
    }
    module = network_module(plan, kernels, timed=timed)
    reader = WorkspaceReader()
    with tvm.transform.PassContext(instruments=[reader]):
        executable = relax.build(
            module,
            target=compiled_for(target, resources),
            relax_pipeline=tvm.transform.Sequential([]),
            tir_pipeline=registered(),
            exec_mode="bytecode",
        )
    return executable, {
        symbol: reader.found.get(symbol)
        or _of_team(plan, calls[symbol], kernels.get(symbol), reader.found)
        for symbol in plan.symbols.values()
    }


def _of_team(
    plan: NetworkPlan,
    call: PlannedCall,
    kernel: tirx.PrimFunc | None,
    found: Mapping[str, Workspaces],
) -> Workspaces:
    """What a kernel takes that is in the network as parts for a team; nothing for one that is
    elsewhere."""
    threads = plan.lanes[call.lane].resources.threads
    if kernel is None or call.lane == MAIN_LANE or threads == 1:
        return Workspaces()
    parts = parts_of(kernel, plan.symbol(call), threads)
    taken = [found[str(part.attrs["global_symbol"])] for part in parts.functions]
    shared = (pooled(*kind) for kind in parts.shared)
    return Workspaces(
        shared=tuple(size for size in shared if size),
        own=tuple(size for each in taken for size in (*each.shared, *each.own)),
    )


def _reading_given(plan: NetworkPlan) -> frozenset[str]:
    """The symbols of kernels that read or write what the network's caller gives it, constants among
    it. The VM looks at shapes and types of that, the kernels at how and where it lies in memory;
    all else the network makes."""
    given_names = {name for name, place in plan.tensors.items() if place.root in plan.inputs}
    return frozenset(
        plan.symbol(call)
        for call in plan.calls
        if call.constants or given_names.intersection((*call.inputs, call.output))
    )


def _kernel(
    call: PlannedCall, plan: NetworkPlan, target: Target, *, checked: bool
) -> tirx.PrimFunc:
    """The kernel of a call; `checked` where it has to look at its operands itself."""
    resources = plan.lanes[call.lane].resources
    kernel = instructed(kernel_module(call.workload, call.candidate, target, resources))["main"]
    kernel = kernel if checked else given(kernel)
    return on_one_thread(kernel) if call.lane != MAIN_LANE and resources.cores == 1 else kernel


def outside(call: PlannedCall) -> tuple[str, tuple[str, ...], tuple[int, ...]] | None:
    """The function that a network calls for a kernel that it does not contain, and what it is given
    (`builders.base.CalledInNetworks`); None for a kernel of its own."""
    builder = builder_for(call.candidate)
    if not isinstance(builder, CalledInNetworks):
        return None
    return builder.network_call(call.workload, call.candidate)


def write_library(executable: relax.VMExecutable, path: Path) -> None:
    """Link a network's library with this machine's compiler."""
    executable.export_library(str(path))


def write_weights(folder: Path, plan: NetworkPlan, packed: Path) -> None:
    """Write the weights file from packed arrays stored as `.npy` files in `packed`."""
    tensors, size_bytes = {}, 0
    for stored in plan.constants:
        array = map_array(packed / f"{stored.name}.npy", stored.dtype)
        tensors[stored.name] = tvm.runtime.tensor(array)
        size_bytes += array.nbytes
    path = folder / WEIGHTS
    tvm.runtime.save_param_dict_to_file(tensors, str(path))
    if path.stat().st_size < size_bytes:  # TVM does not say when writing failed
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels by symbol; one comes into the module when it is first called."""

    builder: relax.BlockBuilder
    known: Mapping[str, tirx.PrimFunc]
    parts: dict[str, Parts] = field(default_factory=dict[str, Parts])
    _added: dict[str, relax.Expr] = field(default_factory=dict[str, relax.Expr])

    def types(self, symbol: str) -> tuple[Kind, ...]:
        """Shapes and types of a kernel's operands."""
        return argument_types(self.known[symbol])

    def function(self, symbol: str) -> relax.Expr:
        """What the builder calls a kernel."""
        if symbol not in self._added:
            kernel = self.known[symbol].with_attr("global_symbol", symbol)
            self._added[symbol] = self.builder.add_func(kernel, symbol)
        return self._added[symbol]

    def in_lane(self, symbol: str, operands: Sequence[int], threads: int) -> LaneCall:
        """A call in a lane of so many threads; the parts of its kernel are in the module once."""
        if threads == 1:
            self.function(symbol)
            return LaneCall(symbols=[symbol], operands=operands)
        if symbol not in self.parts:
            self.parts[symbol] = parts_of(self.known[symbol], symbol, threads)
            for part in self.parts[symbol].functions:
                self.builder.add_func(part, str(part.attrs["global_symbol"]))
        parts = self.parts[symbol]
        symbols = [str(part.attrs["global_symbol"]) for part in parts.functions]
        return LaneCall(symbols=symbols, operands=operands, shared=parts.shared)


class _Emitter:
    """One function of a network: what is allocated and checked in it so far."""

    def __init__(self, builder: relax.BlockBuilder, plan: NetworkPlan) -> None:
        self.builder = builder
        self.plan = plan
        self.views: dict[tuple[str, tuple[int, ...]], relax.Var] = {}
        self.guarded: set[tuple[str, tuple[IndexRange, ...]]] = set()
        self.regions = 0
        self.roots: dict[str, relax.Var] = {}
        self.arena: relax.Var | None = None

    def open(self, inputs: Sequence[relax.Var]) -> None:
        """Allocate the arena, and for outputs memory of their own, so that they outlive the run."""
        plan = self.plan
        self.roots.update(zip(plan.inputs, inputs, strict=True))
        if plan.arena_bytes:
            size = relax.ShapeExpr([plan.arena_bytes])
            self.arena = self.builder.emit(
                relax.op.memory.alloc_storage(size, 0, "global", "uint8")
            )
        for tensor in dict.fromkeys(plan.outputs):
            kind = plan.tensors[tensor].type
            if kind.is_static and tensor not in self.roots and plan.tensors[tensor].root == tensor:
                shape = relax.ShapeExpr(PLAIN.physical_shape(kind.shape))
                self.roots[tensor] = self.builder.emit(
                    relax.op.builtin.alloc_tensor(shape, kind.dtype, 0)
                )

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
        """A tensor's memory in the physical shape a kernel wants."""
        key = (name, shape)
        if key not in self.views:
            self.views[key] = self._view(name, shape, dtype)
        return self.views[key]

    def _view(self, name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
        place = self.plan.tensors[name]
        root, offset_bytes = self.roots.get(place.root), place.offset_bytes
        if root is not None and offset_bytes == 0 and _shape(root) == shape:
            return root
        if root is None:
            offset_bytes += self.plan.memory[place.device].offsets[place.root]
        offset, physical = tirx.const(offset_bytes, "int64"), relax.ShapeExpr(shape)
        tensor = self.builder.emit(
            relax.op.memory.alloc_tensor(self.arena, offset, physical, dtype)
            if root is None
            else relax.op.memory.view(root, physical, dtype, offset)
        )
        if offset_bytes == 0:
            return tensor
        # kernels want the offset in the pointer; on a CPU this moves it and copies nothing
        return self.builder.emit(relax.op.memory.ensure_zero_offset(tensor))

    def operands(
        self,
        call: PlannedCall,
        kinds: Iterable[tuple[tuple[int, ...], str]],
        parameters: dict[str, relax.Var],
    ) -> list[relax.Var]:
        """What a call reads and writes, in the order of its kernel's parameters, which are of these
        shapes and types; without the result where `kinds` end before it."""
        names = zip([*call.inputs, call.output], kinds, strict=False)
        return [
            parameters[call.constants[index]]
            if index in call.constants
            else self.tensor(name, *kind)
            for index, (name, kind) in enumerate(names)
        ]

    def outside(self, call: PlannedCall, parameters: dict[str, relax.Var]) -> relax.Call:
        """A call of a function that the network does not contain."""
        name, first, order = outside(call) or ("", (), ())
        result, arguments = call.workload.result, call.workload.arguments
        types = [*(argument.type for argument in arguments), *([result] * result.is_static)]
        kinds = [
            (form.physical_shape(kind.shape), kind.dtype)
            for kind, form in zip(types, call.candidate.forms, strict=False)
        ]
        known = self.operands(call, kinds, parameters)
        operands = [*(known[index] for index in order), *known[len(arguments) :]]
        answer = relax.TensorType(dtype=result.dtype, ndim=len(result.shape))
        kind = relax.TupleType([]) if result.is_static else answer
        given = [*map(tvm.ir.StringImm, first), *operands]
        return relax.Call(relax.ExternFunc(name), given, ty_args=[kind])

    def called(
        self, call: PlannedCall, kernels: _Kernels, parameters: dict[str, relax.Var]
    ) -> relax.Call:
        """A call of a kernel, behind what checks its operands."""
        symbol = self.plan.symbol(call)
        if symbol not in kernels.known:
            return self.outside(call, parameters)
        operands = self.operands(call, kernels.types(symbol), parameters)
        _check_operands(symbol, operands, kernels.types(symbol))
        self.guard(call, operands)
        return relax.Call(kernels.function(symbol), operands)

    def beside(
        self,
        lanes: Region,
        kernels: _Kernels,
        parameters: dict[str, relax.Var],
        marks: tuple[relax.Var, Marks] | None,
    ) -> relax.Call:
        """A call of a region, behind what checks its operands; with `marks` it notes there when
        each of its calls begins and ends."""
        numbers: dict[relax.Var, int] = {}
        kinds: list[Kind] = []
        teams: list[TeamCalls] = []
        for lane in lanes.lanes:
            calls: list[LaneCall] = []
            threads = self.plan.lanes[lane[0].lane].resources.threads
            for call in lane:
                types = kernels.types(self.plan.symbol(call))
                operands = self.operands(call, types, parameters)
                _check_operands(self.plan.symbol(call), operands, types)
                self.guard(call, operands)
                for operand, kind in zip(operands, types, strict=True):
                    if numbers.setdefault(operand, len(numbers)) == len(kinds):
                        kinds.append(kind)
                places = [numbers[operand] for operand in operands]
                calls.append(kernels.in_lane(self.plan.symbol(call), places, threads))
            teams.append(TeamCalls(threads=threads, calls=calls))
        symbol = f"{'timed_' if marks else ''}region_{self.regions}"
        self.regions += 1
        noted = () if marks is None else marks[:1]
        rows = None if marks is None else marks[1].of_region(lanes)
        function = self.builder.add_func(region(symbol, kinds, teams, rows), symbol)
        return relax.Call(function, [*numbers, *noted])

    def guard(self, call: PlannedCall, operands: Sequence[relax.Var]) -> None:
        """Check the indices that a call reads, each tensor once."""
        for indices in argument_uses(call.workload):
            key = (call.inputs[indices.port], indices.ranges)
            if indices.port not in call.constants and key not in self.guarded:
                self.guarded.add(key)
                operand, symbol = operands[indices.port], f"guard_{len(self.guarded)}"
                kind = (_shape(operand), str(operand.ty.dtype.dtype))
                function = index_guard(symbol, *kind, indices.ranges, call.name)
                self.builder.emit(relax.Call(self.builder.add_func(function, symbol), [operand]))


def _check_operands(symbol: str, operands: Sequence[relax.Var], kinds: Sequence[Kind]) -> None:
    """Raise RuntimeError where a network gives a kernel another shape or type than it takes: the
    kernel itself does not look."""
    found = tuple((_shape(operand), str(operand.ty.dtype.dtype)) for operand in operands)
    if found != tuple(kinds):
        raise RuntimeError(f"{symbol} takes {kinds}, and the network gives it {found}")


def _shape(variable: relax.Var) -> tuple[int, ...]:
    return tuple(int(extent) for extent in variable.ty.shape)


def network_module(
    plan: NetworkPlan, kernels: dict[str, tirx.PrimFunc], *, timed: bool = False
) -> tvm.IRModule:
    """The Relax module of a plan on one device, ready for the VM's code generation; `kernels` are
    its kernels by symbol.

    With `timed` it has two more functions, one that notes the time before and after every call
    where `Marks` say, one that tells the kernels' symbols in order, with spaces between them:

        timed(inputs..., marks, constants...) -> marks
        called() -> symbols
    """
    builder = relax.BlockBuilder()
    known = _Kernels(builder, kernels)
    _emit_function(builder, plan, known, None)
    if timed:
        clock = builder.add_func(stopwatch(Marks(plan)), SYMBOL)
        _emit_function(builder, plan, known, clock)
        with builder.function(CALLED, []):
            symbols = " ".join(plan.symbol(call) for call in plan.calls)
            builder.emit_func_output(tvm.ir.StringImm(symbols))
    passes = [getattr(relax.transform, name)() for name in PIPELINE]
    return tvm.transform.Sequential(passes)(builder.get())


def _emit_function(
    builder: relax.BlockBuilder, plan: NetworkPlan, kernels: _Kernels, clock: relax.Expr | None
) -> None:
    """The whole network as a function; with a `clock` it gives marks of time, not its outputs."""
    types = {tensor: planned.type for tensor, planned in plan.tensors.items()}
    inputs = [
        relax.Var(f"input_{i}", relax.TensorType(types[tensor].shape, types[tensor].dtype))
        for i, tensor in enumerate(plan.inputs)
    ]
    parameters = {
        c.name: relax.Var(c.name, relax.TensorType(c.shape, c.dtype)) for c in plan.constants
    }
    marks = Marks(plan)
    kept = relax.Var("marks", relax.TensorType((marks.rows, 2), "int64"))
    noted = [] if clock is None else [kept]
    note = [relax.Call(clock, noted)] if noted else []
    name = TIMED if noted else MAIN
    with builder.function(name, [*inputs, *noted, *parameters.values()]):
        emitter = _Emitter(builder, plan)
        emitter.open(inputs)
        for call in steps_of(plan):
            if isinstance(call, Region):
                where = (kept, marks) if noted else None
                builder.emit(emitter.beside(call, kernels, parameters, where))
                continue
            for step in note:
                builder.emit(step)
            answer = builder.emit(emitter.called(call, kernels, parameters))
            if not call.workload.result.is_static:
                emitter.views[call.output, call.workload.result.shape] = answer
            for step in note:
                builder.emit(step)
        results = noted or [
            emitter.tensor(tensor, PLAIN.physical_shape(types[tensor].shape), types[tensor].dtype)
            for tensor in plan.outputs
        ]
        builder.emit_func_output(relax.Tuple(results) if len(results) > 1 else results[0])


def index_guard(
    symbol: str, shape: tuple[int, ...], dtype: str, ranges: Sequence[IndexRange], reader: str
) -> tirx.PrimFunc:
    """A function that fails where an index is out of range, called before the kernel that uses it:

        for all indices: outside |= index < lowest or index > highest; then assert not outside

    Kernels read no further than their operands and say nothing; imported ones may even read and
    write elsewhere. A guard costs about a microsecond and a nanosecond per index.
    `ranges` are one for all or one for each position along the last axis; `reader` is the name of
    the call that uses the indices, for the message.
    """
    rows = prod(shape) // len(ranges)
    message = f"{reader!r} {OUTSIDE} {', '.join(map(str, ranges))}"
    with IRBuilder() as builder, script.prim_func():
        script.func_name(symbol)
        script.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        buffer = script.arg("indices", script.buffer(shape, dtype))
        indices = script.decl_buffer((rows * len(ranges),), dtype, data=buffer.data)
        outside = script.alloc_buffer((1,), "int32", scope="local")
        script.buffer_store(outside, tirx.const(0, "int32"), [0])
        with script.serial(0, rows) as row:
            for column, valid in enumerate(ranges):
                index = indices[row * len(ranges) + column]
                wrong = tirx.Cast("int32", _is_outside(index, dtype, valid))
                script.buffer_store(outside, outside[0] | wrong, [0])
        with script.Assert(tirx.EQ(outside[0], tirx.const(0, "int32")), message, _ERROR):
            script.evaluate(0)
    return builder.get()


def _is_outside(index: tirx.Expr, dtype: str, valid: IndexRange) -> tirx.Expr:
    wide = index if dtype == "int64" else tirx.Cast("int64", index)
    low, high = (tirx.const(bound, "int64") for bound in (valid.lowest, valid.highest))
    return tirx.any(wide < low, wide > high)
