"""Products of matrices in tile registers, as tensor intrinsics.

    C[row, column] = Σ A[row, k] * B[k, column]     up to 4 registers of sums, k as long as it is

TVM has no tile registers. A kernel imports a function of a whole sum (see `amx_text`), and an
intrinsic says what it means, so that all around it is scheduled as usual. Registers are set up once
for each piece of work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import Any

from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import from_source
from tvm.script import tirx as T

from tilewright.compiler.lower.amx_text import SUM_BYTES, Tiles, tiles_text
from tilewright.compiler.lower.loops import extents
from tilewright.compiler.lower.mmla_text import mmla_text
from tilewright.compiler.prefetch import FAR, TILE
from tilewright.compiler.tile_setup import LEFT_OUT, SET_UP, TILE_NUMBER
from tilewright.core.targets import Target
from tilewright.kernels.amx import LINE_BYTES


def opened(schedule: Schedule, loop: Any, tiles: Tiles, target: Target) -> None:
    """Import the functions of the tiles, and set registers up in each iteration of a loop where
    they must be."""
    text = tiles_text(tiles, target) if tiles.kind.set_up else mmla_text(tiles)
    schedule.annotate(loop, "pragma_import_llvm", text)
    if tiles.kind.set_up:
        schedule.annotate(loop, SET_UP, tiles.function)


def shared_out(
    schedule: Schedule,
    pieces: Sequence[Any],
    serial: Sequence[Any],
    inner: Sequence[Any],
    threads: int,
) -> tuple[Any, Any, list[tuple[Any, int]]]:
    """Spread the outermost loops of pieces over threads, as few as keep all of them busy. The
    parallel loop; the innermost one, of a tile; and where those `inner` loops are that use the
    same weights, each with how many tiles it counts: they are marked as that."""
    loops = [*pieces, *serial]
    counts = extents(schedule, loops)

    def cost(outer: int) -> float:
        parts = prod(counts[:outer])
        return -(-parts // threads) * (prod(counts[outer : len(pieces)]) + _SET_UP)

    outer = min(range(1, len(pieces) + 1), key=cost)
    first = len(loops) - len(inner)
    parallel = schedule.fuse(*pieces[:outer]) if outer > 1 else pieces[0]
    schedule.parallel(parallel)
    tiles = [(parallel, prod(counts[first:outer]))]
    tiles += list(zip(loops[outer:], counts[outer:], strict=True))[max(0, first - outer) :]
    for loop, number in tiles:
        if number > 1:
            schedule.annotate(loop, TILE, number)
    return parallel, loops[-1] if outer < len(loops) else parallel, tiles


_SET_UP = 0.05
"""To set registers up, in tiles' time."""


def tensorized(
    schedule: Schedule, anchor: Any, first: Any, extents: Sequence[int], intrinsic: str
) -> None:
    """Compute the sums of the block `anchor` by the intrinsic, from the loop `first` on; `extents`
    are those of its loops that are no sums. What would set sums to zero is left out."""
    start = schedule.decompose_reduction(anchor, first)
    loops = sum(extent > 1 for extent in extents)
    schedule.annotate(schedule.get_loops(start)[-loops], LEFT_OUT, 1)
    schedule.tensorize(first, intrinsic)


def fetching(
    target: Target, tiles: Tiles, weight_bytes: int, loops: Sequence[tuple[Any, int]]
) -> Tiles:
    """The tiles, each of which fetches its part of the weights of the next channels, where weights
    come from memory. Those of some channels are used for one tile after the other, which the
    `loops` run over, each with how many it counts."""
    if weight_bytes < target.cache_bytes(2) // FAR:
        return tiles
    lines = tiles.step_bytes // LINE_BYTES
    return replace(tiles, fetched=-(-lines // prod(count for _, count in loops)))


def ahead(tiles: Tiles, panel_bytes: int) -> str:
    """How far ahead of a step its tile fetches, as an argument of the function."""
    lines = tiles.step_bytes // LINE_BYTES
    if not tiles.fetched:
        return "T.int64(0)"
    last, each = -(-lines // tiles.fetched) - 1, tiles.fetched * LINE_BYTES
    number = f'T.min(T.call_extern("int32", "{TILE_NUMBER}"), {last})'
    return f'T.cast({number} * {each} + {panel_bytes}, "int64")'


Pair = tuple[int, int]

_INTRINSIC = """
@marks.prim_func(s_tir=True)
def {what}(a: T.handle, b: T.handle, c: T.handle) -> None:
    {variables}A = T.match_buffer(a, {a_shape}, "{left}", offset_factor=1{a_strides})
    B = T.match_buffer(b, {b_shape}, "{right}", offset_factor=1{b_strides})
    C = T.match_buffer(c, {c_shape}, "{sums}", offset_factor=1, scope="local"{c_strides})
    with T.sblock("root"):
        T.reads(C[{c_all}], A[{a_all}], B[{b_all}])
        T.writes(C[{c_all}])
        {body}
"""
_MEANING = """for {loops}, in T.grid({extents}):
            with T.sblock("update"):
                {names}, = T.axis.remap("{kinds}", [{real}])
                C[{c}] = C[{c}] + product_of(A[{a}], B[{b}])"""
_MARKS = SimpleNamespace(prim_func=lambda **_attributes: T.prim_func)
"""What makes a text a kernel's; the attributes are read off the text. TVM's own decorator would
look up the source of all that is on the stack."""
_CALLED = 'T.evaluate(T.call_extern("int32", "{function}", {arguments}))'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """A buffer of an intrinsic: its shape, the names of strides, and where a product is in it."""

    shape: Sequence[int]
    strides: Sequence[str]
    at: Sequence[str]

    @property
    def every(self) -> str:
        return ", ".join(f"0:{extent}" for extent in self.shape)


def _registered(
    name: str,
    tiles: Tiles,
    matrices: Mapping[str, _Matrix],
    loops: Mapping[str, int],
    arguments: Sequence[str],
) -> str:
    """The name of an intrinsic, made once. Loops of one iteration are none in what TVM compares
    with; those called `v_r…` are of sums."""
    if TensorIntrin.get(name, allow_missing=True) is not None:
        return name
    kind, left_out = tiles.kind, [loop for loop, extent in loops.items() if extent == 1]
    real = [loop for loop in loops if loop not in left_out]
    strides = sorted({s for m in matrices.values() for s in m.strides if not s.isdigit()})
    shapes = {f"{m}_shape": tuple(matrix.shape) for m, matrix in matrices.items()}
    every = {f"{m}_all": matrix.every for m, matrix in matrices.items()}
    given = {
        f"{m}_strides": f", strides=[{', '.join(matrix.strides)}]" for m, matrix in matrices.items()
    }
    places = {m: ", ".join(matrix.at) for m, matrix in matrices.items()}
    for loop in left_out:
        places = {m: re.sub(rf"\b{loop}\b", "0", at) for m, at in places.items()}
    meaning = _MEANING.format(
        loops=", ".join(loop[2:] for loop in loops),
        extents=", ".join(map(str, loops.values())),
        names=", ".join(real),
        kinds="".join("R" if loop.startswith("v_r") else "S" for loop in real),
        real=", ".join(loop[2:] for loop in real),
        **places,
    )
    called = _CALLED.format(function=tiles.function, arguments=", ".join(arguments))
    common = {"left": kind.left, "right": kind.right, "sums": kind.sums, **shapes, **every}
    nothing = {"variables": "", **dict.fromkeys(given, "")}
    known = {"variables": "".join(f"{stride} = T.int32()\n    " for stride in strides)}
    texts = (
        _INTRINSIC.format(what="meaning", body=meaning, **common, **nothing),
        _INTRINSIC.format(what="called", body=called, **common, **known, **given),
    )
    used = {"T": T, "marks": _MARKS, "product_of": kind.product}
    TensorIntrin.register(name, *(from_source(text, extra_vars=used) for text in texts))
    return name


def _bytes(stride: str, times: int = 1) -> str:
    return f'T.cast({stride}, "int64") * T.int64({times})'


def _constants(*numbers: int) -> list[str]:
    return [f"T.int64({number})" for number in numbers]


def dense_tiles(tiles: Tiles, depth: int) -> str:
    """The registered intrinsic of rows that lie below each other:
    C[row, 0, column] = Σ A[row, k] * B[k / terms, column, k % terms]."""
    rows, columns, terms = tiles.rows * tiles.down, tiles.lanes, tiles.kind.terms
    size = tiles.kind.element_bytes
    panel_bytes = depth * columns * size
    matrices = {
        "a": _Matrix(
            shape=(rows, depth),
            strides=("a_row", "1"),
            at=("v_i", f"v_rk * {terms} + v_rt"),
        ),
        "b": _Matrix(
            shape=(depth // terms, columns, terms),
            strides=("b_row", str(terms), "1"),
            at=("v_rk", "v_j", "v_rt"),
        ),
        "c": _Matrix(
            shape=(rows, 1, columns), strides=("c_row", str(columns), "1"), at=("v_i", "0", "v_j")
        ),
    }
    arguments = [
        'A.access_ptr("r")',
        _bytes("a_row", size),
        _bytes("a_row", size * tiles.rows),
        'B.access_ptr("r")',
        *_constants(0),
        'C.access_ptr("rw")',
        _bytes("c_row", SUM_BYTES),
        _bytes("c_row", SUM_BYTES * tiles.rows),
        *_constants(0, 1, 0, 1, 0, depth // tiles.depth, tiles.depth_bytes),
        ahead(tiles, panel_bytes),
        *_constants(0),
    ]
    loops = {"v_i": rows, "v_j": columns, "v_rk": depth // terms, "v_rt": terms}
    return _registered(f"{tiles.function}_of_{depth}", tiles, matrices, loops, arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the sums of a convolution run over: chunks of channels and taps, of a step each. With
    `fold` a step takes so many taps, and the lanes of a pixel go on with those of the next columns.
    Rows are of `width` pixels, which counts where tiles go beyond."""

    chunks: int
    kernel: Pair
    strides: Pair
    dilation: Pair
    fold: int
    width: int


def convolution_tiles(tiles: Tiles, steps: Steps) -> str:
    """The registered intrinsic of images in chunks of channels: C[o, y, x, lane] = Σ A[chunk,
    y * stride + ky * dilation, …, lane] * B[o, slot of chunk and tap, lane, term]."""
    (rows, columns), (height, width) = tiles.plane, steps.kernel
    loops = {"v_o": tiles.out, "v_i": rows, "v_j": columns, "v_k": tiles.lanes}
    loops |= {"v_rn": steps.chunks, "v_rp": height, "v_rq": width}
    loops |= {"v_rs": tiles.slots, "v_rt": tiles.kind.terms}
    given = (steps.chunks, *steps.kernel, *steps.strides, *steps.dilation)
    numbers = "_".join(map(str, (*given, steps.fold, rows, steps.width)))
    matrices, arguments = _matrices_of_images(tiles, steps), _arguments_of_images(tiles, steps)
    return _registered(f"{tiles.function}_of_{numbers}", tiles, matrices, loops, arguments)


def _matrices_of_images(tiles: Tiles, steps: Steps) -> Mapping[str, _Matrix]:
    terms, slots, (rows, columns) = tiles.kind.terms, tiles.slots, tiles.plane
    (kh, kw), (sh, sw), (dh, dw) = steps.kernel, steps.strides, steps.dilation
    high, wide = (rows - 1) * sh + (kh - 1) * dh + 1, (columns - 1) * sw + (kw - 1) * dw + 1
    row, lane = f"v_i * {sh} + v_rp * {dh}", f"v_rs * {terms} + v_rt"
    left = _Matrix(
        shape=(steps.chunks, high, wide, tiles.depth),
        strides=("a_chunk", "a_row", "a_pixel", "1"),
        at=("v_rn", row, f"v_j * {sw} + v_rq * {dw}", lane),
    )
    if steps.fold > 1:
        apart = sw * tiles.depth // steps.fold
        left = _Matrix(
            shape=(steps.chunks, high, (columns - 1) * apart + kw * tiles.depth),
            strides=("a_chunk", "a_row", "1"),
            at=("v_rn", row, f"v_j * {apart} + v_rq * {tiles.depth} + {lane}"),
        )
    slot = f"((v_rn * {kh} + v_rp) * {kw} + v_rq) * {slots} + v_rs"
    right = _Matrix(
        shape=(tiles.out, steps.chunks * kh * kw * slots, tiles.lanes, terms),
        strides=("b_out", str(tiles.lanes * terms), str(terms), "1"),
        at=("v_o", slot, "v_k", "v_rt"),
    )
    sums = _Matrix(
        shape=(tiles.out, rows, columns, tiles.lanes),
        strides=("c_out", "c_row", str(tiles.lanes), "1"),
        at=("v_o", "v_i", "v_j", "v_k"),
    )
    return {"a": left, "b": right, "c": sums}


def _arguments_of_images(tiles: Tiles, steps: Steps) -> list[str]:
    (kh, kw), (sh, sw), (dh, dw) = steps.kernel, steps.strides, steps.dilation
    size, folded = tiles.kind.element_bytes, steps.fold > 1
    pixel, step = (str(tiles.depth // steps.fold), str(tiles.depth)) if folded else ("a_pixel",) * 2
    (lines,) = _constants(0)
    if tiles.beyond:
        number = f'T.call_extern("int32", "{TILE_NUMBER}")'
        lines = f'T.cast({steps.width} - {number} * {tiles.plane[1]}, "int64")'
    a_down, c_down = _bytes("a_row", size * sh), _bytes("c_row", SUM_BYTES)
    if tiles.beside:
        a_down = _bytes(pixel, size * sw * tiles.rows)
        (c_down,) = _constants(tiles.rows * tiles.lanes * SUM_BYTES)
    panel_bytes = tiles.out * steps.chunks * kh * kw * tiles.depth_bytes * tiles.lanes
    return [
        'A.access_ptr("r")',
        _bytes(pixel, size * sw),
        a_down,
        'B.access_ptr("r")',
        _bytes("b_out", size),
        'C.access_ptr("rw")',
        *_constants(tiles.lanes * SUM_BYTES),
        c_down,
        _bytes("c_out", SUM_BYTES),
        *_constants(steps.chunks),
        _bytes("a_chunk", size),
        *_constants(kh),
        _bytes("a_row", size * dh),
        *_constants(kw),
        _bytes(step, size * dw),
        ahead(tiles, panel_bytes),
        lines,
    ]
