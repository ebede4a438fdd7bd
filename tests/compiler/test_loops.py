"""How loops without a reduction are shared out and vectorised: extents worked out by hand."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te
from tvm.s_tir import Schedule

from tilewright.compiler.lower.loops import extents, reduction_split, spread, vectorize_last

Loops = list[tuple[int, str]]


def block_of(shape: tuple[int, ...]) -> tuple[Schedule, object]:
    """A schedule of a copy of that shape, and its block."""
    source = te.placeholder(shape, name="source")
    result = te.compute(shape, lambda *index: source(*index) + 1.0, name="result")
    schedule = Schedule(te.create_prim_func([source, result]))
    return schedule, schedule.get_sblock("result")


def loops_of(schedule: Schedule, block: object) -> Loops:
    """The extent and kind of each loop, outermost first: serial, parallel, vectorised."""
    kinds = ("serial", "parallel", "vectorised")
    loops = schedule.get_loops(block)
    return [
        (extent, kinds[int(schedule.get(loop).kind)])
        for loop, extent in zip(loops, extents(schedule, loops), strict=True)
    ]


def spread_out(shape: tuple[int, ...], lanes: int, pieces: int, **named: int) -> Loops:
    schedule, block = block_of(shape)
    spread(schedule, block, lanes, pieces, **named)
    return loops_of(schedule, block)


def test_rows_are_shared_out_and_the_last_loop_is_in_vectors() -> None:
    assert spread_out((64, 1024), 16, 2) == [(64, "parallel"), (64, "serial"), (16, "vectorised")]
    assert spread_out((4, 16, 1024), 16, 2)[0] == (64, "parallel"), "all outer loops are one"


def test_little_work_and_a_single_thread_are_not_shared_out() -> None:
    """8191 elements are too few, 8192 are enough."""
    assert spread_out((8191, 1), 16, 2) == [(8191, "serial")]
    assert "parallel" in {kind for _, kind in spread_out((8192, 1), 16, 2)}
    assert spread_out((64, 1024), 16, 1) == [(64, "serial"), (64, "serial"), (16, "vectorised")]


def test_trailing_loops_become_one_until_they_fill_the_lanes() -> None:
    shape, outer = (5, 6, 2, 4), (5, "serial")
    rest = [(6, "serial"), (2, "serial"), (4, "vectorised")]
    assert spread_out(shape, 4, 2) == [outer, *rest]
    assert spread_out(shape, 8, 2) == [outer, (6, "serial"), (8, "vectorised")]
    assert spread_out(shape, 16, 2) == [outer, (3, "serial"), (16, "vectorised")]
    assert spread_out(shape, 4, 2, tail=1) == [outer, (12, "serial"), (4, "vectorised")]
    assert spread_out((100, 7), 16, 2) == [(175, "serial"), (4, "vectorised")], "all of them"


@pytest.mark.parametrize(
    ("shape", "pieces", "wanted"),
    [
        # a quarter is 25000; 20000 is its nearest divisor below that is a multiple of 16
        ((1, 100_000), 2, [(5, "parallel"), (1250, "serial"), (16, "vectorised")]),
        # no multiple of 16 divides an odd number; 11111 is the nearest of its other divisors
        ((1, 99_999), 2, [(9, "parallel"), (11_111, "serial")]),
        # a prime number: a quarter rounded up to whole vectors, and the last piece is shorter
        ((1, 99_991), 2, [(4, "parallel"), (1563, "serial"), (16, "vectorised")]),
        # three rows are fewer than four pieces: each is cut in eight
        ((3, 16_384), 4, [(24, "parallel"), (128, "serial"), (16, "vectorised")]),
    ],
)
def test_too_few_rows_are_cut(shape: tuple[int, ...], pieces: int, wanted: Loops) -> None:
    assert spread_out(shape, 16, pieces) == wanted


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 7, 16, 30, 121, 509]), min_size=1, max_size=3),
    st.sampled_from([4, 8, 16]),
    st.integers(1, 9),
)
def test_every_element_is_covered_and_hardly_more(
    shape: list[int], lanes: int, pieces: int
) -> None:
    found = spread_out(tuple(shape), lanes, pieces)
    kinds = [kind for _, kind in found]
    assert prod(extent for extent, _ in found) >= prod(shape)
    assert prod(extent for extent, _ in found) < prod(shape) + lanes * pieces * 4
    assert kinds.count("parallel") == (pieces > 1 and prod(shape) >= 8192)
    if "parallel" in kinds:
        assert kinds[0] == "parallel" and found[0][0] >= min(pieces, prod(shape) // lanes)
    assert all(extent <= lanes for extent, kind in found if kind == "vectorised")


@pytest.mark.parametrize(
    ("extent", "lanes", "wanted"),
    [
        (1, 8, [(1, "serial")]),
        (2, 8, [(2, "vectorised")]),
        (5, 8, [(5, "vectorised")]),
        (8, 8, [(8, "vectorised")]),
        (24, 8, [(3, "serial"), (8, "vectorised")]),
        (20, 8, [(5, "serial"), (4, "vectorised")]),
        (18, 8, [(18, "serial")]),
        (18, 2, [(9, "serial"), (2, "vectorised")]),
        (23, 8, [(23, "serial")]),
    ],
)
def test_vectors_have_no_tails(extent: int, lanes: int, wanted: Loops) -> None:
    """A loop that only vectors of two would divide stays plain, unless there are no more lanes."""
    schedule, block = block_of((extent,))
    vectorize_last(schedule, schedule.get_loops(block)[0], lanes)
    assert loops_of(schedule, block) == wanted


def test_loops_of_a_reduction_are_told_apart() -> None:
    source = te.placeholder((4, 6, 8), name="source")
    along = te.reduce_axis((0, 6), name="along")
    result = te.compute((4, 8), lambda i, j: te.sum(source(i, along, j), axis=along), name="sums")
    schedule = Schedule(te.create_prim_func([source, result]))
    spatial, reduction = reduction_split(schedule, schedule.get_sblock("sums"))
    assert (extents(schedule, spatial), extents(schedule, reduction)) == ([4, 8], [6])
