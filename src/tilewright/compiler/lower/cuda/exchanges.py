"""Neighbours that lanes of a warp exchange, so that each has one place of several lanes.

    lane    had        has then
    0       a b c d    a e i m
    1       e f g h    b f j n
    2       i j k l    c g k o
    3       m n o p    d h l p

A matrix of lanes by places is transposed bit by bit, as the columns of a matrix of bits are
(Warren, "Hacker's Delight", 2012, 7-3): in each turn, a lane gives half of what it has to the one
whose number differs in that bit.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilewright.kernels.cuda.product_tiles import WARP

Expr = Any
_WHOLE_WARP = 0xFFFFFFFF


def exchange(given: Any, sent: Any, lane: Expr, apart: int) -> None:
    """Transpose the places of `given` among as many lanes, a power of two, which are numbered
    `lane` and lie so far `apart` in a warp, all of which must take part; `sent` is one register."""
    (width,) = (int(extent) for extent in given.shape)
    bit = 1
    while bit < width:
        odd = tirx.EQ(tirx.floormod(tirx.floordiv(lane, bit), 2), 1)
        for low in (place for place in range(width) if not place & bit):
            high = low | bit
            sent[0] = tirx.Select(odd, given[low], given[high])
            whole = tirx.const(_WHOLE_WARP, "uint32")
            sent[0] = tirx.op.tvm_warp_shuffle_xor(whole, sent[0], bit * apart, WARP, WARP)
            given[low] = tirx.Select(odd, sent[0], given[low])
            given[high] = tirx.Select(odd, given[high], sent[0])
        bit *= 2
