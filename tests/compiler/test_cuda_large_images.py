"""A convolution of (32, 300, 300, 64): lowered, compiled, and a few of its blocks executed on the
CPU, whose results are compared with numpy at the places that they wrote."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.gpu_kernels import a_gpu
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.builders.cuda import program_of
from tilewright.compiler.cuda.compilers import compiled_source, missing_compiler
from tilewright.core.forms import IMAGE_LAYOUTS, PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram
from tilewright.kernels.registry import implementation, ports_in
from tilewright.kernels.spaces import MAX_ERROR, default_candidate
from tilewright.measure.checking import relative_error
from tilewright.testing.cuda_execution import compiler, cuda_executable

IMAGES, CHANNELS, SIDE = 32, 64, 300
TF32_ERROR = 2e-3
COMPARED = 2_000
"""Places of the result."""
CASES = {
    "NCHW": ("NCHW", MAX_ERROR, "cuda_product"),
    "NHWC": ("NHWC", MAX_ERROR, "cuda_product"),
    "NCHW, tf32": ("NCHW", TF32_ERROR, "cuda_product_tf32"),
    "NHWC, tf32": ("NHWC", TF32_ERROR, "cuda_product_tf32"),
}
_MORE = ((), pytest.mark.on_request)


def _convolution() -> Workload:
    named = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
    shapes = [(IMAGES, CHANNELS, SIDE, SIDE), (CHANNELS, CHANNELS, 3, 3), (CHANNELS, 1, 1)]
    return workload(shapes, step("conv2d", 0, 1, **named), step("add", 3, 2))


TASK = _convolution()


def _default(layout: str, error: float, name: str) -> Candidate:
    on = a_gpu()
    forms = ports_in(IMAGE_LAYOUTS[layout], TASK, on.target, on.resources)
    assert forms is not None
    candidate, _ = default_candidate(TASK, forms, on, error)
    assert candidate.implementation == name
    return candidate


def _program(candidate: Candidate) -> CudaProgram:
    on = a_gpu()
    return program_of(TASK, candidate, on.target, on.resources)


def _expected(arrays: list[Array], places: tuple[Array, ...], last: bool) -> tuple[Array, Array]:
    """The result at places (image, channel, row, column), and the sizes of what is summed there."""
    data, weights, bias = arrays
    image, channel, row, column = places
    total = bias[channel, 0, 0].astype(np.float64)
    size = np.abs(total)
    for tap in np.ndindex(3, 3):
        y, x = row + tap[0] - 1, column + tap[1] - 1
        inside = (y >= 0) & (y < SIDE) & (x >= 0) & (x < SIDE)
        y, x = y.clip(0, SIDE - 1), x.clip(0, SIDE - 1)
        pixels = data[image, y, x] if last else data[image, :, y, x]
        terms = pixels.astype(np.float64) * weights[channel, :, tap[0], tap[1]]
        total += inside * terms.sum(axis=1)
        size += inside * np.abs(terms).sum(axis=1)
    return total, size


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
@pytest.mark.parametrize(
    ("name", "blocks"),
    [pytest.param(name, 1 if name == "NHWC" else 3, marks=_MORE[name != "NHWC"]) for name in CASES],
)
def test_drawn_blocks_are_right_at_their_places(name: str, blocks: int) -> None:
    candidate = _default(*CASES[name])
    program, last = _program(candidate), candidate.forms[0] != PLAIN
    rng = np.random.default_rng(0)
    few = rng.standard_normal(1_000_003, dtype=np.float32)
    shape = TASK.arguments[0].type.shape
    arrays = [
        np.resize(few, (shape[0], *shape[2:], shape[1]) if last else shape),
        *(rng.standard_normal(it.type.shape, dtype=np.float32) for it in TASK.arguments[1:]),
    ]
    result = np.zeros(arrays[0].shape, np.float32)  # no sum is zero; NaN would cost 700 MB
    given = {f"argument{place}": array for place, array in enumerate(arrays)}
    cuda_executable(program.source, optimized=True).run(
        program.launches, given | {"result": result}, seed=5, blocks=blocks
    )
    written = np.flatnonzero(result)
    (launch,) = program.launches
    assert written.size == blocks * result.size // launch.grid[0], "its tiles and nothing else"
    some = rng.choice(written, COMPARED, replace=False)
    found = np.unravel_index(some, result.shape)
    places = (found[0], found[3], found[1], found[2]) if last else found
    expected, size = _expected(arrays, places, last)
    bound = implementation(candidate.implementation).error_bound(TASK)
    assert relative_error(result.reshape(-1)[some], expected, size) <= bound


@pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
@pytest.mark.parametrize("name", CASES)
def test_large_images_compile_without_spills(name: str) -> None:
    program = _program(_default(*CASES[name]))
    (report,) = compiled_source(program.source, "sm_90").reports.values()
    assert (report.spill_store_bytes, report.stack_bytes) == (0, 0)
