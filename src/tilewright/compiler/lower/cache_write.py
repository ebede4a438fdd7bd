"""New rows in a cache.

result = cache          # memmove, which does nothing where both are the same memory
position before the rows
  row, if its place is inside
    what one row holds  # vectorised
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower.program import Program
from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target

_MOST_LANES = 64


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel, which one thread runs."""
    (step,), result = program.workload.steps, program.workload.result
    axis = step.integer("axis")
    added = program.workload.types[step.inputs[1]].shape[axis]
    before, rows, width = (prod(part) for part in _parts(result.shape, axis))

    def emit(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        with IRBuilder() as builder:
            with build.seq_scope():
                cache, new, place, written = (
                    build.decl_buffer((count,), buffer.dtype, data=buffer.data)
                    for buffer, count in zip(
                        (*inputs, *outputs),
                        (result.elements, before * added * width, 1, result.elements),
                        strict=True,
                    )
                )
                size = tirx.const(element_type(result.dtype).bytes * result.elements, "int64")
                build.evaluate(
                    tirx.call_extern("handle", "memmove", written.data, cache.data, size)
                )
                lanes = gcd(width, _MOST_LANES)
                with build.serial(0, before) as lead, build.serial(0, added) as row:
                    asked, at = tirx.Cast("int64", place[0]), tirx.Cast("int32", place[0]) + row
                    first, last = (tirx.Cast("int64", end - row) for end in (0, rows - 1))
                    parts, lane = build.serial(0, width // lanes), build.vectorized(0, lanes)
                    inside = build.If(tirx.all(asked >= first, asked <= last))
                    with inside, build.Then(), parts as part, lane as column:
                        column = part * lanes + column
                        value = new[(lead * added + row) * width + column]
                        where = (lead * rows + at) * width + column
                        build.buffer_store(written, value, [where])
            return builder.get().body

    tensors = [program.tensors[value] for value in step.inputs]
    shape = [result.shape]
    written = te.extern(shape, tensors, emit, name="result", dtype=[result.dtype])
    return program.begin(te.create_prim_func([*program.tensors, written]))


def _parts(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], ...]:
    return shape[:axis], shape[axis : axis + 1], shape[axis + 1 :]
