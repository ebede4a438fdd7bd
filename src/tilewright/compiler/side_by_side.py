"""Lanes of one core or several as one parallel loop: TVM's pool runs a lane on each of its threads,
or on some of them that are a team.

    for thread in T.parallel(3):
        if thread < 2:
            a1(x, t, thread); barrier of two; a2(t, y, thread)
        else:
            b1(x, z)

The threads of the pool are awake and have cores of their own already, so that lanes begin within
two microseconds, and no thread is added that would have to share a core. The pool takes no launch
inside another one. So the kernels of a lane of one core have serial loops. Those of a team fall
apart at their parallel loops: each thread does its share of one, and waits for the team.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script
from tvm_ffi import structural_map, structural_visit

from tilewright.compiler.stopwatch import noting
from tilewright.graph.marks import RegionMarks

Kind = tuple[tuple[int, ...], str]
"""Physical shape and element type of an operand."""

_BARRIER, _POOL_SIZE = "TVMBackendParallelBarrier", "runtime.NumThreads"
_LINE = 16
"""Numbers of four bytes in a line of the cache: the runtime counts who arrived that far apart."""
_DATA, _KIND, _TENSOR = 1, 10, 6
"""Fields of a tensor's descriptor, and its size in words of eight bytes. It begins as what the
runtime knows of a team: where its counts are, and how many threads it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A kernel as functions that every thread of a team calls one after the other. Behind the
    kernel's operands each takes buffers of kinds `shared`, which the team has once, and the number
    of the thread."""

    functions: Sequence[tirx.PrimFunc]
    shared: Sequence[Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCall:
    """The symbols of a kernel's parts, the numbers of its operands among those of the region, and
    the kinds of buffers that the parts share. A kernel of a lane of one core is one part."""

    symbols: Sequence[str]
    operands: Sequence[int]
    shared: Sequence[Kind] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCalls:
    """The calls of a lane, one after the other, on so many threads."""

    threads: int
    calls: Sequence[LaneCall]


def on_one_thread(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel whose parallel loops are serial ones."""
    return kernel.with_body(_on_one_thread(kernel.body))


def _on_one_thread(body: Any) -> Any:
    return structural_map(body, (tirx.For, _serial))


def _serial(loop: Any) -> Any:
    return _ranging(loop, loop.min, loop.extent) if _is_parallel(loop) else loop


def _is_parallel(statement: Any) -> bool:
    return isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL


def _ranging(loop: Any, begin: Any, extent: Any) -> Any:
    """A loop's body in a serial loop from there on."""
    kind = tirx.ForKind.SERIAL
    return tirx.For(loop.loop_var, begin, extent, kind, loop.body, annotations=loop.annotations)


def parts_of(kernel: tirx.PrimFunc, symbol: str, threads: int) -> Parts:
    """A kernel as parts for a team of so many threads: each of its parallel loops in shares, all
    else by the first thread."""
    root = kernel.body.block if isinstance(kernel.body, s_tir.SBlockRealize) else None
    steps = list(_steps(kernel.body if root is None else root.body))
    allocated = [] if root is None else list(root.alloc_buffers)
    users = [[step for step in steps if _uses(step, buffer)] for buffer in allocated]
    each = list(zip(allocated, users, strict=True))
    shared = [buffer for buffer, using in each if len(using) > 1]
    functions: list[tirx.PrimFunc] = []
    for number, step in enumerate(steps):
        thread = tirx.Var("thread", "int32")
        body = _share(step, thread, threads)
        own = [buffer for buffer, using in each if using == [step]]
        if root is not None:
            block = s_tir.SBlock([], [], [], root.name_hint, body, alloc_buffers=own)
            body = s_tir.SBlockRealize([], True, block)
        function = tirx.PrimFunc([*kernel.params, *shared, thread], body, attrs=kernel.attrs)
        functions.append(function.with_attr("global_symbol", f"{symbol}_part_{number}"))
    kinds = [(tuple(map(int, buffer.shape)), str(buffer.dtype)) for buffer in shared]
    return Parts(functions=functions, shared=kinds)


def _steps(statement: Any) -> Iterator[Any]:
    """The statements of a body, the loops that run once around a parallel one taken apart."""
    if isinstance(statement, tirx.SeqStmt):
        for each in statement.seq:
            yield from _steps(each)
    elif isinstance(statement, tirx.For) and not _is_parallel(statement) and _once(statement):
        index, begin = statement.loop_var, statement.min
        placed = (tvm.ir.Var, lambda variable: begin if variable.same_as(index) else variable)
        yield from _steps(structural_map(statement.body, placed))
    else:
        yield statement


def _once(loop: Any) -> bool:
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 1


def _uses(statement: Any, buffer: Any) -> bool:
    found: list[Any] = []

    def note(variable: Any, _visitor: Any) -> None:
        found.append(variable)

    structural_visit(statement, [(tvm.ir.Var, note)])
    return any(variable.same_as(buffer) for variable in found)


def _share(step: Any, thread: Any, threads: int) -> Any:
    """A thread's share of a parallel loop, as large as the pool makes them; anything else is the
    first thread's."""
    if not _is_parallel(step):
        return tirx.IfThenElse(tirx.EQ(thread, 0), _on_one_thread(step), None)
    count = tirx.floordiv(step.extent + (threads - 1), threads)
    skipped = tirx.Min(tirx.Cast(str(step.extent.ty.dtype), thread) * count, step.extent)
    return _ranging(step, step.min + skipped, tirx.Min(count, step.extent - skipped))


def region(
    symbol: str,
    kinds: Sequence[Kind],
    lanes: Sequence[TeamCalls],
    noted: RegionMarks | None = None,
) -> tirx.PrimFunc:
    """The function of a region whose operands are of these kinds, and behind them the marks where
    the time is noted, if it is. It says nothing about which operands share memory: those of
    different calls may."""
    threads = sum(lane.threads for lane in lanes)
    with IRBuilder() as builder, script.prim_func():
        script.func_name(symbol)
        script.func_attr({"global_symbol": symbol})
        operands = [
            script.arg(f"operand_{number}", script.buffer(*kind))
            for number, kind in enumerate(kinds)
        ]
        marks = noted and script.arg("marks", script.buffer((noted.rows, 2), "int64"))
        shared = [
            [[script.alloc_buffer(*kind) for kind in call.shared] for call in lane.calls]
            for lane in lanes
        ]
        teams = list(_teams(lanes)) if threads > len(lanes) else [None] * len(lanes)
        with script.parallel(0, threads) as number:
            first, row = 0, noted.first if noted else 0
            for lane, buffers, team in zip(lanes, shared, teams, strict=True):
                inside = tirx.all(number >= first, number < first + lane.threads)
                with script.If(inside), script.Then():
                    clock = None if marks is None else _Clock(marks, row, lane, number - first)
                    _run(lane, operands, buffers, team, number - first, clock)
                first += lane.threads
                row += 2 * lane.threads * len(lane.calls)
    return builder.get()


def _teams(lanes: Sequence[TeamCalls]) -> Iterator[Any]:
    """Where the runtime finds what it knows of each team; a team that waits for a thread which the
    pool does not have would wait for ever."""
    threads = sum(lane.threads for lane in lanes)
    with script.Assert(
        tirx.call_packed(_POOL_SIZE) >= threads,
        f"lanes of {threads} threads in a pool that has fewer",
        "RuntimeError",
    ):
        script.evaluate(0)
    counts = script.alloc_buffer((threads * _LINE,), "int32")
    with script.serial(0, threads * _LINE) as place:
        script.buffer_store(counts, tirx.const(0, "int32"), [place])
    known = script.alloc_buffer((len(lanes) * _TENSOR,), "int64")
    first = 0
    for number, lane in enumerate(lanes):
        team = tirx.address_of(known[number * _TENSOR])
        where = tirx.address_of(counts[first * _LINE])
        size = tirx.const(lane.threads, "int32")
        for field, value in ((_DATA, where), (_KIND, size)):
            script.evaluate(tirx.tvm_struct_set(team, 0, field, value))
        first += lane.threads
        yield team


@dataclass(frozen=True, slots=True)
class _Clock:
    """Notes the time of a lane's calls, from a row of the marks on, for a thread of it."""

    marks: Any
    row: int
    lane: TeamCalls
    thread: Any

    def note(self, call: int, *, ends: bool) -> None:
        """Note that the thread begins or ends a call of the lane, by its number."""
        script.evaluate(
            noting(self.marks, self.row + 2 * (self.lane.threads * call + self.thread) + ends)
        )


def _run(
    lane: TeamCalls,
    operands: Sequence[Any],
    shared: Iterable[Sequence[Any]],
    team: Any,
    thread: Any,
    clock: _Clock | None,
) -> None:
    """What a thread of a lane does."""
    begun = False
    for place, (call, buffers) in enumerate(zip(lane.calls, shared, strict=True)):
        given = [*(operands[each] for each in call.operands), *buffers]
        for symbol in call.symbols:
            if lane.threads > 1 and begun:
                script.evaluate(tirx.call_extern("int32", _BARRIER, thread, team))
            if clock is not None and symbol == call.symbols[0]:
                clock.note(place, ends=False)
            numbered = [*given, thread] if lane.threads > 1 else given
            script.evaluate(tirx.call_cpacked(symbol, *numbered))
            begun = True
        if clock is not None:
            clock.note(place, ends=True)
