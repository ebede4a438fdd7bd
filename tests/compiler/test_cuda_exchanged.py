"""Products whose lanes exchange results: executed in three orders, and compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.kernels.cuda_kernels import check_cuda_kernel, executed
from helpers.kernels.cuda_settings import check_compiled
from helpers.kernels.gpu_kernels import gpu_program
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.workload import Workload
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import compiler

NAME, TF32 = "cuda_product_exchanged", "cuda_product_tf32_exchanged"
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
TILES = dict(
    tile_rows=64, tile_columns=16, thread_rows=4, thread_columns=2, tile_depth=8, stages=1, split=1,
    by_taps=False,
)  # fmt: skip


def convolution(height: int, out: int, side: int = 3, width: int = 0) -> Workload:
    """With a bias, a residual and a function that is held in a register."""
    named = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)
    conv = step("conv2d", 0, 1, **named)
    shapes = [(1, 3, height, width or height), (out, 3, side, side), (out, 1, 1)]
    result = workload(shapes[:2], conv).result.shape
    behind = (step("add", 4, 2), step("add", 5, 3), step("sigmoid", 6))
    return workload([*shapes, result], conv, *behind)


@executes
@pytest.mark.parametrize(
    "tiles",
    [{}, {"thread_rows": 8, "stages": 2}, {"thread_rows": 2, "thread_columns": 4}, {"split": 2}],
    ids=["four neighbours", "two vectors of them", "two neighbours", "parts"],
)
def test_results_are_right(tiles: dict[str, int]) -> None:
    """With parts and lines of an even length, TVM once divided by zero (width 16)."""
    task = convolution(13, 19, width=16 if "split" in tiles else 13)
    check_cuda_kernel(gpu_program(NAME, task, {**TILES, **tiles}), task)


@executes
def test_lines_along_columns() -> None:
    task = workload([(21, 20), (20, 43)], step("dense", 0, 1))
    tiles = {**TILES, "tile_rows": 16, "tile_columns": 32, "thread_rows": 2, "thread_columns": 4}
    check_cuda_kernel(gpu_program(NAME, task, tiles), task)


@executes
@pytest.mark.parametrize("split", [1, 2])
def test_results_of_matrix_units_are_right(split: int) -> None:
    sizes = dict(tile_rows=64, tile_columns=32, warp_rows=16, warp_columns=16, tile_depth=8)
    settings = {**sizes, "stages": 2, "split": split, "by_taps": False}
    for task in (convolution(13, 19), workload([(21, 20), (20, 43)], step("dense", 0, 1))):
        check_cuda_kernel(gpu_program(TF32, task, settings), task, name=TF32)


@executes
def test_what_is_not_exchanged_is_wrong() -> None:
    task = convolution(13, 19)
    program = gpu_program(NAME, task, TILES)
    text = program.source.replace("given_ptr[0], 8, 32)", "given_ptr[0], 0, 32)")
    text = text.replace("sent_ptr[0], 8, 32)", "sent_ptr[0], 0, 32)")
    assert text != program.source
    arguments = sample_arguments(task, 0)
    right, wrong = (
        executed(replace(program, source=source), task, arguments, seed=0)
        for source in (program.source, text)
    )
    assert abs(right - wrong).max() > 0.01


@pytest.mark.parametrize(("arch", "name"), [("sm_75", NAME), ("sm_120", NAME), ("sm_80", TF32)])
def test_nothing_is_spilled(arch: str, name: str) -> None:
    check_compiled([(convolution(201, 32), name), (convolution(227, 32, 7), name)], arch)
