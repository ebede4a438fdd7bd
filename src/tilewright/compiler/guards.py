"""Functions that fail where an index is out of range, called before the kernel that uses it.

Kernels read no further than their operands and say nothing; imported ones may even read and write
elsewhere. A guard costs about a microsecond and a nanosecond per index.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from tilewright.graph.indices import IndexRange

ERROR = "IndexError"
"""What TVM raises in the caller."""
OUTSIDE = "is given an index that is not in"
"""What the message says, where its kind does not come along."""


def index_guard(
    symbol: str, shape: tuple[int, ...], dtype: str, ranges: Sequence[IndexRange], reader: str
) -> tirx.PrimFunc:
    """for all indices: outside |= index < lowest or index > highest; then assert not outside

    `ranges` are one for all or one for each position along the last axis; `reader` is the name of
    the call that uses the indices, for the message.
    """
    rows = prod(shape) // len(ranges)
    limits = ", ".join(map(str, ranges))
    message = f"{reader!r} {OUTSIDE} {limits}"
    with IRBuilder() as builder:
        with script.prim_func():
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
            with script.Assert(tirx.EQ(outside[0], tirx.const(0, "int32")), message, ERROR):
                script.evaluate(0)
        return builder.get()


def _is_outside(index: tirx.Expr, dtype: str, valid: IndexRange) -> tirx.Expr:
    wide = index if dtype == "int64" else tirx.Cast("int64", index)
    low, high = (tirx.const(bound, "int64") for bound in (valid.lowest, valid.highest))
    return tirx.any(wide < low, wide > high)
