"""Direct convolutions for GPUs: executed in three orders, and compiled.

pytest tests/compiler/test_cuda_direct.py -m on_request       many more shapes
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.kernels.cuda_images import (
    check_image_kernel,
    image_convolution,
    image_settings,
    offered,
)
from helpers.kernels.cuda_kernels import executed
from helpers.kernels.cuda_settings import check_compiled
from helpers.kernels.gpu_kernels import gpu_program
from tilewright.core.forms import CHANNELS_LAST
from tilewright.graph.workload import Workload
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler

NAME = "cuda_direct"
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
TILES = dict(rows=2, columns=4, channels=8, down=4, across=8, deep=2, beside=1)


def square(x: tuple[int, ...], out: int, side: int, stride: int = 1, pad: int = 0, **named):
    """With a bias, a residual and a relu behind it."""
    every = dict(strides=(stride,) * 2, padding=(pad,) * 4) | named
    return image_convolution(x, out, (side, side), **every)


CONVOLUTIONS = {
    "one channel, padded": square((2, 1, 13, 17), 5, 5, pad=3),
    "three, in two groups": square((1, 6, 11, 13), 26, 3, 2, groups=2),
    "four, seven taps": square((1, 4, 17, 12), 8, 7, 2, pad=2, padding=(0, 3, 1, 2)),
    "wide steps": square((1, 3, 23, 29), 19, 11, 4, pad=1),
    "taps apart": square((1, 3, 19, 14), 12, 3, dilation=(2, 3), strides=(1, 2)),
    "computed filters": image_convolution((1, 3, 9, 11), 8, padding=(1,) * 4, packed=False),
}


def check(task: Workload, first: int, count: int) -> None:
    """So many settings from the best to the worst, each in the next of the forms that there are."""
    ports = offered(NAME, task)
    assert any(CHANNELS_LAST in forms for forms in ports)
    for number in range(first, first + count):
        forms = ports[number % len(ports)]
        found = image_settings(NAME, task, forms)
        check_image_kernel(NAME, task, forms, found[(13 * number) % len(found)])


@executes
@pytest.mark.parametrize(("name", "first"), [(name, i) for i, name in enumerate(CONVOLUTIONS)])
def test_results_are_right(name: str, first: int) -> None:
    check(CONVOLUTIONS[name], first, 2)


@executes
@pytest.mark.on_request
@pytest.mark.parametrize("seed", range(12))
def test_odd_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for side in (3, 5, 7, 11):
        channels, stride, pad = (int(rng.choice(some)) for some in ((1, 3, 4), (1, 2, 4), range(4)))
        groups, out, count = (int(rng.choice(some)) for some in ((1, 2), (4, 5, 13, 32), (1, 2)))
        height, width = (int(rng.choice((13, 17, 19, 23, 29, 31, 37))) for _ in range(2))
        shape = (count, channels * groups, height, width)
        check(square(shape, out * groups, side, stride, pad, groups=groups), seed, 4)


@executes
@pytest.mark.parametrize(
    "tiles",
    [{"beside": 0}, {"columns": 7}, {"columns": 2, "rows": 1, "across": 32, "deep": 1}],
    ids=["apart", "seven columns", "long lines"],
)
def test_columns_of_a_thread(tiles: dict[str, int]) -> None:
    task = square((1, 3, 12, 32), 16, 3, pad=1)
    forms = offered(NAME, task)[0]
    setting = {**TILES, **tiles, "channels": 4}
    check_image_kernel(NAME, task, forms, setting)


EXCHANGED = {**TILES, "channels": 4, "beside": 2}
ODD = square((1, 3, 11, 19), 14, 3)


@executes
@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        ((1, 3, 11, 19), {"down": 3, "rows": 2, "deep": 4}),
        ((1, 6, 13, 36), {"columns": 8, "down": 1, "deep": 4, "rows": 7}),
        ((2, 3, 12, 21), {"columns": 2, "across": 16, "down": 5}),
    ],
    ids=["along rows and channels", "two vectors, along channels", "pairs"],
)
def test_columns_that_lanes_exchange(shape: tuple[int, ...], tiles: dict[str, int]) -> None:
    task = square(shape, 14, 3, pad=1, padding=(1, 2, 0, 1), groups=shape[1] // 3)
    check_image_kernel(NAME, task, offered(NAME, task)[0], {**EXCHANGED, **tiles})


@executes
@pytest.mark.parametrize("tiles", [TILES, EXCHANGED], ids=["beside", "exchanged"])
def test_a_missing_barrier_is_a_fault(tiles: dict[str, int]) -> None:
    program = gpu_program(NAME, ODD, tiles)
    assert program.source.count("__syncthreads();") == 1
    broken = replace(program, source=program.source.replace("__syncthreads();", ""))
    with pytest.raises(KernelFault):
        executed(broken, ODD, sample_arguments(ODD, 0), seed=0)


@executes
def test_a_missing_exchange_is_wrong() -> None:
    program, arguments = gpu_program(NAME, ODD, EXCHANGED), sample_arguments(ODD, 0)
    kept = program.source.replace("sent_ptr[0], 8, 32)", "sent_ptr[0], 0, 32)")
    assert kept != program.source and "given_ptr" not in gpu_program(NAME, ODD, TILES).source
    right, wrong = (
        executed(replace(program, source=source), ODD, arguments, seed=0)
        for source in (program.source, kept)
    )
    assert abs(right - wrong).max() > 0.01


@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_nothing_is_spilled(arch: str) -> None:
    """At 227, lanes exchange columns."""
    check_compiled([(square((1, 3, size, size), 32, 3), NAME) for size in (225, 227)], arch)


@pytest.mark.on_request
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_large_filters_are_not_spilled(arch: str) -> None:
    large, wide = square((1, 3, 224, 224), 64, 7, 2, pad=3), square((1, 3, 224, 224), 64, 11, 4)
    check_compiled([(large, NAME), (wide, NAME)], arch)
