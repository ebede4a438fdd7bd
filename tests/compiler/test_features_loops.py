"""Loop nests found in scheduled functions, against counts made by hand."""

from __future__ import annotations

from math import prod

import pytest
from tvm.script import tirx as T

from helpers.kernels.nests import conv_nests, product
from helpers.kernels.one_kernel import PLACEMENT, step, workload
from tilewright.compiler.build import kernel_module
from tilewright.compiler.features.kinds import heaviest, main_touches
from tilewright.compiler.features.loops import loop_nests
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.network import TensorType


def test_fused_and_split_loops() -> None:
    (nest,) = loop_nests(product)
    assert [(loop.extent, loop.kind) for loop in nest.loops] == [
        (4, "parallel"), (6, "serial"), (8, "vectorized"),
    ]  # fmt: skip
    assert nest.executions == 8 * 6 * 4 and nest.executions_inside() == [192, 48, 8, 1]
    assert nest.arithmetic == (1, 1, 0, 0)
    c, a, b = nest.touches
    # c is read where it is written, which is one touch
    assert (c.written, c.strides, c.distinct) == (True, (8, 0, 1), (4.0, 1.0, 8.0))
    assert c.footprint_bytes == 8 * 4 * 4
    # two rows of a in turn, four iterations on each
    assert (a.strides, a.runs, a.distinct) == ((12, 1, 6), (4, 6, 4), (4.0, 6.0, 2.0))
    # four columns of b, twice
    assert (b.strides, b.runs, b.distinct) == ((0, 4, 1), (4, 6, 4), (1.0, 6.0, 4.0))


@T.prim_func(s_tir=True)
def window(a: T.Buffer((40,), "float32"), b: T.Buffer((10,), "int8")) -> None:
    for i in range(10):
        for k in range(3):
            b[i] = T.cast(a[i * 4 + k] / T.float32(3) - a[i * 4 + k + 1], "int8")


def test_shifted_reads_are_one_touch() -> None:
    (nest,) = loop_nests(window)
    written, read = nest.touches
    assert nest.arithmetic == (1, 0, 1, 0)
    assert (written.element_bytes, read.element_bytes) == (1.0, 4.0)
    assert (read.strides, read.distinct) == ((4, 1), (10.0, 3.0))


@T.prim_func(s_tir=True)
def long(a: T.Buffer((100_000,), "float32"), b: T.Buffer((1,), "float32")) -> None:
    for i in range(100_000):
        b[0] = a[i]


def test_long_loops_are_extrapolated() -> None:
    (nest,) = loop_nests(long)
    assert [touch.distinct for touch in nest.touches] == [(1.0,), (100_000.0,)]


def test_direct_convolution() -> None:
    nests = conv_nests()
    (nest,) = heaviest(nests, 1)
    # 5 rows of tiles × 4 chunks; 7 tiles in a row; chunk, ky, kx, lane; the tile; lanes
    extents = [20, 7, 4, 3, 3, 8, 3, 2, 1, 8]
    assert [loop.extent for loop in nest.loops] == extents
    assert [loop.kind for loop in nest.loops] == (
        ["parallel"] + ["serial"] * 5 + ["unrolled"] * 3 + ["vectorized"]
    )
    assert nest.executions == prod(extents) and nest.arithmetic == (1, 1, 0, 0)
    sums, data, weights = main_touches(nest)
    assert sums.written and sums.footprint_bytes == 4 * 32 * 15 * 14
    assert weights.strides == (8 * 32 * 9, 0, 8 * 8 * 9, 8 * 8 * 3, 8 * 8, 8, 0, 0, 0, 1)
    assert weights.footprint_bytes == 4 * 32 * 32 * 9
    assert weights.runs[0] == 4 and data.distinct[0] == 5.0
    assert data.strides[-3:] == (8, 0, 0)
    # nests: border of zeros, start values, products, epilogue
    assert [n.executions for n in nests] == [68 * 16 * 8, 20 * 7 * 48, prod(extents), 20 * 7 * 48]
    # loops around several nests are the same loops
    assert [loop.number for loop in nests[1].loops[:2]] == [3, 4]
    assert [loop.number for loop in nests[3].loops[:2]] == [3, 4]


@pytest.mark.parametrize(
    ("knob", "value"),
    [("tile_width", 7), ("reduce_order", "ky,kx,chunk,lane"), ("unroll", "kx"), ("in_block", 4)],
)
def test_a_knob_changes_the_nest(knob: str, value: object) -> None:
    before, after = (heaviest(nests, 1)[0] for nests in (conv_nests(), conv_nests(**{knob: value})))
    assert (before.loops, before.touches) != (after.loops, after.touches)
    assert before.executions == after.executions


def test_indices_read_from_memory() -> None:
    task = workload([(64, 128), TensorType((10,), "int64")], step("gather", 0, 1, axis=0))
    candidate = Candidate(
        implementation="injective", settings=_only_settings(task), forms=(PLAIN,) * 3
    )
    (nest,) = loop_nests(
        kernel_module(task, candidate, PLACEMENT.target, PLACEMENT.resources)["main"]
    )
    sizes = sorted(touch.element_bytes for touch in nest.touches)
    assert sizes == [4.0, 4.0, 8.0] and nest.executions == 1280


@T.prim_func(s_tir=True)
def tensorized(a: T.Buffer((8, 64), "int8"), c: T.Buffer((8, 16), "int32")) -> None:
    for i, k in T.grid(8, 4):
        with T.sblock("row"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(a[vi, vk * 16 : vk * 16 + 16])
            T.writes(c[vi, 0:16])
            part = T.match_buffer(a[vi, vk * 16 : vk * 16 + 16], (16,), "int8", offset_factor=1)
            sums = T.match_buffer(c[vi, 0:16], (16,), "int32", offset_factor=1)
            sums[T.ramp(0, 1, 16)] = T.cast(
                part.vload([0], "int8x16") ^ T.broadcast(T.int8(1), 16), "int32x16"
            )


def test_views_and_vectors() -> None:
    (nest,) = loop_nests(tensorized)
    written, read = nest.touches
    assert nest.executions == 32 and nest.arithmetic == (0, 0, 0, 1)
    assert (written.element_bytes, written.strides) == (64.0, (16, 0))
    assert (read.element_bytes, read.strides) == (16.0, (64, 16))
    assert (written.footprint_bytes, read.footprint_bytes) == (4 * 8 * 16, 8 * 64)


def _only_settings(task) -> tuple:
    from helpers.kernels.one_kernel import all_settings

    return tuple(all_settings(task, "injective", (PLAIN,) * 3)[0].items())
