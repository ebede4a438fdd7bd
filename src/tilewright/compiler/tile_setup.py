"""What kernels in tile registers have around their products.

Setting registers up and giving them back takes as long as a dozen products, so that it belongs
around a loop over tiles and not into its function. A lowering marks loops, and the marks are part
of its schedule; `with_tiles` turns them into calls right before compiling.

    SET_UP = name   on a loop: each iteration begins with `name_begin` and ends with `name_end`
    LEFT_OUT        on a loop that sets sums to zero, which begin there anyway
    TILE_NUMBER     a call that stands for the number of a panel's tile, by the marks of `prefetch`
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, StringImm
from tvm_ffi import structural_mutate

from tilewright.compiler.prefetch import TILE, Tile, tile_number

SET_UP = "tilewright.set_up"
LEFT_OUT = "tilewright.left_out"
TILE_NUMBER = "tilewright_tile_number"


def with_tiles(module: tvm.IRModule) -> tvm.IRModule:
    """The module with its marks turned into calls."""
    functions = {variable: _rewritten(function) for variable, function in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)


def _rewritten(function: Any) -> Any:
    if not isinstance(function, tirx.PrimFunc):
        return function
    tiles: list[Tile] = []  # the marks passed on the way in

    def visit(loop: Any, mutator: Any) -> Any:
        marks: dict[str, Any] = dict(loop.annotations)
        if LEFT_OUT in marks:
            return tirx.Evaluate(tirx.const(0, "int32"))
        name, counted = marks.pop(SET_UP, None), marks.get(TILE)
        tiles.extend([(loop.loop_var, int(counted))] if counted is not None else [])
        body = mutator.mutate(loop.body)
        del tiles[len(tiles) - (counted is not None) :]
        if name is not None:
            begin, end = (
                tirx.Evaluate(tirx.call_extern("int32", f"{name}_{what}"))
                for what in ("begin", "end")
            )
            body = tirx.SeqStmt([begin, body, end])
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, marks
        )

    def number(call: Any, mutator: Any) -> Any:
        if not any(isinstance(a, StringImm) and a.value == TILE_NUMBER for a in call.args):
            return mutator.default_mutate(call)
        return tile_number(tiles)

    return function.with_body(structural_mutate(function.body, [(tirx.For, visit), (Call, number)]))
