"""Lanes of one core each as one parallel loop: TVM's pool runs a lane on each of its threads.

    for lane in T.parallel(2):
        if lane == 0:
            a1(x, t); a2(t, y)
        else:
            b1(x, z)

The threads of the pool are awake and have cores of their own already, so that lanes begin within
two microseconds, and no thread is added that would have to share a core. The pool takes no launch
inside another one: kernels of lanes are built for one thread, and their loops are serial.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script
from tvm_ffi import structural_map

Kind = tuple[tuple[int, ...], str]
"""Physical shape and element type of an operand."""
LaneCall = tuple[str, Sequence[int]]
"""The symbol of a kernel, and the numbers of its operands among those of the region."""


def on_one_thread(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel whose parallel loops are serial ones."""
    return kernel.with_body(structural_map(kernel.body, (tirx.For, _serial)))


def _serial(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body,
        annotations=loop.annotations,
    )  # fmt: skip


def region(
    symbol: str, kinds: Sequence[Kind], lanes: Sequence[Sequence[LaneCall]]
) -> tirx.PrimFunc:
    """The function of a region whose operands are of these kinds. It says nothing about which of
    them share memory: those of different calls may."""
    with IRBuilder() as builder, script.prim_func():
        script.func_name(symbol)
        script.func_attr({"global_symbol": symbol})
        operands = [
            script.arg(f"operand_{number}", script.buffer(*kind))
            for number, kind in enumerate(kinds)
        ]
        with script.parallel(0, len(lanes)) as number:
            for place, calls in enumerate(lanes):
                with script.If(number == place), script.Then():
                    for name, which in calls:
                        given = (operands[each] for each in which)
                        script.evaluate(tirx.call_cpacked(name, *given))
    return builder.get()
