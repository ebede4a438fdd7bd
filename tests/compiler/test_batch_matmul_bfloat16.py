"""Batched products of bfloat16 against numpy."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.in_halves import HALF, HERE, check, halved, needs_halves
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.build import rendered
from tilewright.core.forms import PLAIN
from tilewright.graph.workload import Workload
from tilewright.hardware.device import parse_target
from tilewright.kernels.spaces import default_candidate

NAME = "batch_matmul_bfloat16"


def products(left, right, transposed: bool) -> Workload:
    """With another tensor of the right's rows added behind."""
    anchor = step("batch_matmul", 0, 1, transpose_b=transposed)
    columns = right[-2] if transposed else right[-1]
    return workload([left, right, (columns,)], anchor, step("add", 3, 2))


@needs_halves
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    leading=st.sampled_from([((2, 3), (2, 3)), ((4,), (1,)), ((1, 3), (2, 1))]),
    rows=st.sampled_from([1, 5, 17, 30]),
    depth=st.sampled_from([1, 6, 16, 33]),
    columns=st.sampled_from([3, 16, 40, 70]),
    transposed=st.booleans(),
    halves=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_any_extents(leading, rows, depth, columns, transposed, halves, choice):
    matrix = (columns, depth) if transposed else (depth, columns)
    task = products((*leading[0], rows, depth), (*leading[1], *matrix), transposed)
    left, right, result = (halved(PLAIN, yes) for yes in halves)
    check(task, HERE, NAME, (left, right, PLAIN, result), choice)


def test_products_are_the_instruction_and_the_default_without_tile_registers() -> None:
    task, half = products((4, 64, 64), (4, 64, 64), False), halved(PLAIN, True)
    zen = replace(parse_target("llvm -mcpu=znver4", 2), precision=HALF)
    candidate, _ = default_candidate(task, (half, half, PLAIN, half), zen)
    assert candidate.implementation == NAME
    text = rendered(task, candidate, zen.target, zen.resources, "asm")
    assert text.count("vdpbf16ps") >= 14
