"""The function of a network that notes when its calls begin and end, on threads of the pool or on
devices where no Python is near (`graph/marks.py`).

    timed(inputs..., marks, constants...) -> marks
"""

from __future__ import annotations

import json
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.core.targets import Target
from tilewright.graph.marks import Marks

SYMBOL = "stopwatch"
_CLOCK, _MONOTONIC = "clock_gettime", 1
"""The C library's function, and Linux's number of the clock that never goes back."""
_WIDE = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64")
"""Processors on which both parts of a time take eight bytes."""


def has_stopwatch(target: Target) -> bool:
    """Whether the clock of a device can be read: one under Linux with words of eight bytes."""
    triple = str(json.loads(target.tvm).get("mtriple", ""))
    return target.architecture in _WIDE and (not triple or "linux" in triple)


def stopwatch(where: Marks) -> tirx.PrimFunc:
    """place = marks[0, 0] % (2 * alone) + 1; marks[0, 0] = place; marks[place] = now

    It begins anew after the last row of calls on all cores, so that runs follow each other without
    a word between them.
    """
    with IRBuilder() as builder, script.prim_func():
        script.func_name(SYMBOL)
        script.func_attr({"global_symbol": SYMBOL, "tirx.noalias": True})
        marks = script.arg("marks", script.buffer((where.rows, 2), "int64"))
        place = script.alloc_buffer((1,), "int64", scope="local")
        most = tirx.const(max(1, 2 * where.alone), "int64")
        one = tirx.const(1, "int64")
        script.buffer_store(place, tirx.floormod(marks[0, 0], most) + one, [0])
        script.buffer_store(marks, place[0], [0, 0])
        script.evaluate(noting(marks, place[0]))
    return builder.get()


def noting(marks: Any, row: Any) -> Any:
    """The C library's call that writes the time, in seconds and nanoseconds, to a row of marks."""
    clock = tirx.const(_MONOTONIC, "int32")
    return tirx.call_extern("int32", _CLOCK, clock, tirx.address_of(marks[row, 0]))
