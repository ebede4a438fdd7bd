"""What handing over from one lane of a network to another takes, in the pool's parallel loop.

    core 0   touch │        touch │        touch │       eight stages of two lanes, one behind
    core 1   touch │        touch │        touch │       the other, as networks have them
                    └ hand-off ┘

A hand-off is from the end of the last call of a stage until the last call of the next one
begins, by the clock that lanes of networks note (`compiler/stopwatch.py`).
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.compiler.side_by_side import Kind, LaneCall, TeamCalls, region
from tilewright.compiler.stopwatch import has_stopwatch
from tilewright.core.targets import Resources, Target
from tilewright.cost.floors import MEASURED
from tilewright.graph.marks import RegionMarks

_STAGES, _LANES, _CORES, _RUNS = 8, 2, 1, 60
"""Stages of a run, lanes of each, cores of each lane, and runs that count."""
_OPERAND: Kind = ((16,), MEASURED)
_MARKS = 2 * _STAGES * _LANES
_KERNEL, _MAIN = "touch", "main"


def lane_handoffs(target: Target, resources: Resources) -> list[float]:
    """Seconds of each hand-off of some runs, on the pool of the calling thread; empty where the
    clock cannot be read within a network."""
    if not has_stopwatch(target):
        return []
    functions = {f"stage_{number}": _stage(number) for number in range(_STAGES)}
    module = tvm.IRModule({_MAIN: _main(), _KERNEL: _kernel(), **functions})
    run = tvm.compile(module, tvm.target.Target(target.tvm_target(resources))).jit()[_MAIN]
    operands = [tvm.runtime.empty(*_OPERAND) for _ in range(_LANES)]
    marks = tvm.runtime.empty((_MARKS, 2), "int64")
    found: list[float] = []
    for number in range(_RUNS + 1):
        run(*operands, marks)
        found += hand_offs(marks.numpy(), _LANES) if number else []
    return found


def hand_offs(marks: np.ndarray, lanes: int) -> list[float]:
    """Seconds of the hand-offs of a run, from rows of begin and end, as clocks note them, of each
    of so many lanes of each stage."""
    times_s = (marks - marks[0]) @ np.array((1.0, 1e-9))
    begin_s, end_s = times_s.reshape(-1, lanes, 2).transpose(2, 0, 1)
    return (begin_s[1:].max(axis=1) - end_s[:-1].max(axis=1)).tolist()


def _kernel() -> tirx.PrimFunc:
    with IRBuilder() as builder, script.prim_func():
        script.func_name(_KERNEL)
        script.func_attr({"global_symbol": _KERNEL})
        operand = script.arg("operand", script.buffer(*_OPERAND))
        with script.serial(0, _OPERAND[0][0]) as place:
            script.buffer_store(operand, tirx.const(1.0, _OPERAND[1]), [place])
    return builder.get()


def _stage(number: int) -> tirx.PrimFunc:
    lanes = [
        TeamCalls(threads=_CORES, calls=[LaneCall(symbols=[_KERNEL], operands=[lane])])
        for lane in range(_LANES)
    ]
    rows = RegionMarks(rows=_MARKS, first=2 * _LANES * number)
    return region(f"stage_{number}", [_OPERAND] * _LANES, lanes, rows)


def _main() -> tirx.PrimFunc:
    with IRBuilder() as builder, script.prim_func():
        script.func_name(_MAIN)
        script.func_attr({"global_symbol": _MAIN})
        operands = [script.arg(f"x_{n}", script.buffer(*_OPERAND)) for n in range(_LANES)]
        marks = script.arg("marks", script.buffer((_MARKS, 2), "int64"))
        for number in range(_STAGES):
            script.evaluate(tirx.call_cpacked(f"stage_{number}", *operands, marks))
    return builder.get()
