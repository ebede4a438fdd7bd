"""Index expressions from logical to physical axes and back, for any layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import tirx

from tilewright.core.layouts import Layout

Index = Sequence[tirx.Expr]
Simplify = Callable[[tirx.Expr], tirx.Expr]


def physical_index(
    layout: Layout, index: Index, shape: tuple[int, ...], simplify: Simplify
) -> list[tirx.Expr]:
    """(n, c, h, w) → (n, c // 16, h, w, c % 16) in blocks of sixteen channels."""
    parts = layout.parts(shape)
    found: list[tirx.Expr] = []
    for axis, part in layout.places(len(shape)):
        place, cut = index[axis], parts[axis]
        inner = prod(cut[part + 1 :])
        if part == 0 and len(cut) > 1:
            place = simplify(tirx.floordiv(place, inner))
        elif part > 0:
            whole = place if inner == 1 else tirx.floordiv(place, inner)
            place = simplify(tirx.floormod(whole, cut[part]))
        found.append(place)
    return found


def logical_index(layout: Layout, position: Index, shape: tuple[int, ...]) -> list[tirx.Expr]:
    """(n, chunk, h, w, lane) → (n, chunk * 16 + lane, h, w): the inverse of `physical_index`."""
    parts = layout.parts(shape)
    found: list[tirx.Expr | None] = [None] * len(shape)
    for (axis, part), place in zip(layout.places(len(shape)), position, strict=True):
        inner = prod(parts[axis][part + 1 :])
        term = place if part == len(parts[axis]) - 1 else place * inner
        before = found[axis]
        found[axis] = term if before is None else before + term
    return [place for place in found if place is not None]
