"""Kernels written thread by thread: what each thread of each block does, statement by statement.

    writer = Writer(program)
    with writer.function() as result:
        with writer.launch(blocks, 256) as (block, thread):
            writer.store(result, value, position)
    return writer.schedule()

A function launches its kernels one after the other. Arguments are read through `program` as in
every other lowering, so that elementwise steps and movements are composed into the expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, physical_index, stored, unravelled
from tilewright.core.forms import own_layout
from tilewright.kernels.cuda.composing import costly_values
from tilewright.kernels.cuda.images import packed_forms

Expr = tirx.Expr
_EVERY_LANE = 0xFFFFFFFF


def integer(value: int) -> Expr:
    """A constant position."""
    return tirx.const(value, "int32")


class Writer:
    """Writes the function `main` of a program; `lane` is that of the vector being written."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lane: Expr = integer(0)
        self._result: tirx.Buffer | None = None
        self._builder = IRBuilder()

    @contextmanager
    def function(self) -> Generator[tirx.Buffer]:
        """The body of the function; gives the buffer of the result."""
        program, ports = self.program, self.program.candidate.forms
        forms = dict(enumerate(ports)) | packed_forms(program.workload, ports)
        with self._builder, script.prim_func(s_tir=True):
            script.func_name("main")
            script.func_attr({"tirx.noalias": True})
            for place, argument in enumerate(program.workload.arguments):
                kind, form = argument.type, forms[place]
                given = script.buffer(form.physical_shape(kind.shape), kind.dtype)
                source = script.arg(f"argument{place}", given)
                program.values[place] = stored(reader(source), kind, form, program.simplify)
            kind = program.workload.result
            given = script.buffer(program.result_form.physical_shape(kind.shape), kind.dtype)
            self._result = result = script.arg("result", given)
            with script.sblock("root"):
                yield result

    def schedule(self) -> Schedule:
        """What was written, once the function is complete."""
        return self.program.begin(self._builder.get())

    def workspace(self, shape: tuple[int, ...], dtype: str, name: str) -> tirx.Buffer:
        """Memory between the kernels, within the function but outside of them."""
        return _named(script.sblock_alloc_buffer(shape, dtype, scope="global"), name)

    @contextmanager
    def launch(self, blocks: int, threads: int) -> Generator[tuple[Expr, Expr]]:
        """A kernel; gives the numbers of the block and of its thread."""
        with (
            script.thread_binding(blocks, thread="blockIdx.x") as block,
            script.thread_binding(threads, thread="threadIdx.x") as thread,
        ):
            self.announce(block, blocks)
            self.announce(thread, threads)
            yield block, thread

    def announce(self, variable: Expr, extent: int) -> None:
        """Tell the simplifier the range of a variable."""
        self.program.simplify.announce([variable], (extent,))

    def local(self, elements: int, dtype: str, name: str) -> tirx.Buffer:
        """Registers of a thread."""
        return _named(script.alloc_buffer((elements,), dtype, scope="local"), name)

    def shared(self, elements: int, dtype: str, name: str) -> tirx.Buffer:
        """Shared memory of a block."""
        return _named(script.alloc_buffer((elements,), dtype, scope="shared"), name)

    def store(self, buffer: tirx.Buffer, value: Expr, at: Index) -> None:
        """buffer[at] = value; the result at the place where its form has those indices."""
        if buffer is self._result:
            layout, shape = own_layout(self.program.result_form), self.program.workload.result.shape
            at = physical_index(layout, at, shape, self.program.simplify)
        script.buffer_store(buffer, value, list(at))

    def store_flat(self, buffer: tirx.Buffer, value: Expr, at: Expr) -> None:
        """Write the element with this number, in the order of memory."""
        shape = [int(extent) for extent in buffer.shape]
        script.buffer_store(buffer, value, unravelled(at, shape, self.program.simplify))

    @contextmanager
    def serial(self, extent: int) -> Generator[Expr]:
        """A loop."""
        with script.serial(extent) as variable:
            self.announce(variable, extent)
            yield variable

    @contextmanager
    def unrolled(self, extent: int) -> Generator[Expr]:
        """A loop that is spelt out."""
        with script.unroll(extent) as variable:
            self.announce(variable, extent)
            yield variable

    @contextmanager
    def vector(self, lanes: int) -> Generator[Expr]:
        """A loop whose turns are the lanes of a vector."""
        if lanes == 1:
            yield integer(0)
            return
        with script.vectorized(lanes) as variable:
            self.announce(variable, lanes)
            self.lane = variable
            yield variable
            self.lane = integer(0)

    @contextmanager
    def when(self, *conditions: Expr | bool) -> Generator[None]:
        """Only where all conditions hold; those that are True hold always."""
        asked = [condition for condition in conditions if condition is not True]
        if not asked:
            yield
            return
        with script.If(tirx.all(*asked) if len(asked) > 1 else asked[0]), script.Then():
            yield

    def either(self, condition: Expr, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """One or the other."""
        with script.If(condition):
            with script.Then():
                yes()
            with script.Else():
                no()

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        script.evaluate(script.tvm_storage_sync("shared"))

    def from_lane(self, value: Expr, distance: int) -> Expr:
        """What the lane whose number differs in this bit has."""
        mask = tirx.const(_EVERY_LANE, "uint32")
        return script.tvm_warp_shuffle_xor(mask, value, distance, 32, 32)


def reader(buffer: tirx.Buffer) -> Callable[..., Expr]:
    """Reads a buffer as tensors are read: buffer(i, j)."""
    return lambda *at: tirx.BufferLoad(buffer, list(at))


def read(buffer: tirx.Buffer, *at: Expr) -> Expr:
    """buffer[at]"""
    return tirx.BufferLoad(buffer, list(at))


def kept(writer: Writer, value: Value) -> Value:
    """A value that goes to a register where it is read, before what is made of it: composed
    expressions of many costly functions would take TVM's simplifier exponential time."""

    def through(index: Index) -> Expr:
        found = value.read(index)
        register = writer.local(1, mathematics.dtype(found), "kept")
        writer.store(register, found, [integer(0)])
        return read(register, integer(0))

    return Value(value.type, through)


def keep_after_anchor(writer: Writer, lanes: int) -> None:
    """Keep what follows the anchor in registers before costly functions are computed of it, a
    register for each lane; elementwise steps read a value at one place only."""
    program = writer.program
    workload = program.workload
    for number in sorted(costly_values(workload)):
        if number > len(workload.arguments) + (workload.anchor_index or 0):
            program.values[number] = _in_lanes(writer, program.operand(number), lanes)


def _in_lanes(writer: Writer, value: Value, lanes: int) -> Value:
    registers = writer.local(lanes, value.type.dtype, "kept")

    def through(index: Index) -> Expr:
        lane = writer.lane
        writer.store(registers, value.read(index), [lane])
        return read(registers, lane)

    return Value(value.type, through)


def _named(buffer: Any, name: str) -> Any:
    IRBuilder.name(name, buffer)
    return buffer
