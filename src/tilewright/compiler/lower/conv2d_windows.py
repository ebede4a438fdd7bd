"""What the tiles of a convolution cover of its result, and what they read of its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, bordered
from tilewright.compiler.prefetch import Tile
from tilewright.kernels.convolution import Convolution, Plane, reach


def shared_tiles(
    conv: Convolution, settings: dict[str, Any], n: Any, tiles: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The loops over tiles that are spread over threads, outermost first, and the others; `tiles`
    are those of channels, rows and columns."""
    o, y, x = tiles
    order, cached = settings["order"], settings.get("cache_chunks", 0)
    if order == "channels" and cached:
        return [n, o], [y, x]
    in_turn = [x] if order != "tiles" and (conv.out_height > 1 or cached) else []
    pixels = [y] if in_turn else [y, x]
    return ([n, *pixels, o] if order == "rows" else [n, o, *pixels]), in_turn


def panel_tiles(
    conv: Convolution, settings: dict[str, Any], parallel: Any, serial: list[Any]
) -> list[Tile]:
    """The loops over the tiles that use the same weights one after the other, and their counts."""
    down = -(-conv.out_height // int(settings["tile_height"]))
    across = -(-conv.out_width // int(settings["tile_width"]))
    alone = settings["order"] == "rows" or settings.get("cache_chunks", 0)
    counts = {
        0: (1 if alone else down * across,),
        1: (1 if alone else down, across),
        2: (1, down, across),
    }[len(serial)]
    return list(zip((parallel, *serial), counts, strict=True))


def with_border(program: Program, conv: Convolution, plane: Plane) -> Value:
    """The input at positions that count the padding, zero outside, as far as `plane` reads it."""
    rows, columns = reach(conv, plane)
    top, left = conv.padding[:2]
    rest = (rows - top - conv.in_height, columns - left - conv.in_width)
    return bordered(program.operand(conv.data), (top, left, *rest))


def clamped(program: Program, conv: Convolution, plane: Plane) -> Value:
    """The input without a border; beyond the last row or column it is read there again."""
    data = program.operand(conv.data)
    rows, columns = reach(conv, plane)

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        if rows > conv.in_height:
            y = tirx.min(y, tirx.const(conv.in_height - 1, "int32"))
        if columns > conv.in_width:
            x = tirx.min(x, tirx.const(conv.in_width - 1, "int32"))
        return data.read([n, c, y, x])

    return Value(data.type, read)
