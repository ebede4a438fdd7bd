"""A kernel that notes the time, for networks that are timed call by call where no Python is near.

It calls the C library's clock of the device, so nothing but the network's own library is needed
there.
"""

from __future__ import annotations

import json

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.core.targets import Target

SYMBOL = "stopwatch"
_MONOTONIC = 1
"""Linux's number of the clock that never goes back."""
_WIDE = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64")
"""Processors on which both parts of a time take eight bytes."""


def has_stopwatch(target: Target) -> bool:
    """Whether the clock of a device can be read: one under Linux with words of eight bytes."""
    triple = str(json.loads(target.tvm).get("mtriple", ""))
    return target.architecture in _WIDE and (not triple or "linux" in triple)


def mark_rows(calls: int) -> int:
    """Rows of marks for a network of so many calls: how many were made, then two for each."""
    return 2 * calls + 1


def stopwatch(calls: int) -> tirx.PrimFunc:
    """place = marks[0, 0] % (rows - 1) + 1; marks[0, 0] = place; marks[place] = now

    `marks` are (seconds, nanoseconds) behind a first row that holds the number of the last one. It
    begins anew after the last row, so that runs follow each other without a word between them.
    """
    rows = mark_rows(calls)
    with IRBuilder() as builder:
        with script.prim_func():
            script.func_name(SYMBOL)
            script.func_attr({"global_symbol": SYMBOL, "tirx.noalias": True})
            marks = script.arg("marks", script.buffer((rows, 2), "int64"))
            place = script.alloc_buffer((1,), "int64", scope="local")
            most = tirx.const(max(1, rows - 1), "int64")
            one = tirx.const(1, "int64")
            script.buffer_store(place, tirx.floormod(marks[0, 0], most) + one, [0])
            script.buffer_store(marks, place[0], [0, 0])
            address = tirx.address_of(marks[place[0], 0])
            clock = tirx.const(_MONOTONIC, "int32")
            script.evaluate(tirx.call_extern("int32", "clock_gettime", clock, address))
        return builder.get()
