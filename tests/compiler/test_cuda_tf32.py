"""Products on the matrix units of GPUs: their text, executed on the CPU in three orders with
factors rounded as the GPU rounds them, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import check_cuda_kernel, executed
from helpers.kernels.cuda_settings import listed
from helpers.kernels.gpu_kernels import a_gpu, gpu_program, space_of
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.cuda.compilers import compiled_source, disassembled, missing_compiler
from tilewright.core.errors import TargetError
from tilewright.core.records import Settings
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler
from tilewright.testing.implementations import single, some_settings

NAME = "cuda_product_tf32"
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
compiles = pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
CONV = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)
DENSE = workload(
    [(3, 37, 53), (53, 71), (71,), (3, 37, 71)],
    step("dense", 0, 1),
    step("add", 4, 2),
    step("gelu", 5),
    step("add", 6, 3),
)
"""With a bias, a function and a residual behind it."""
TASKS = {
    "dense": DENSE,
    "one row": single("dense", (1, 301), (301, 43)),
    "one column": single("dense", (61, 33), (33, 1)),
    "batched": workload(
        [(2, 3, 20, 33), (3, 33, 17), (1,)],
        step("relu", 0),
        step("multiply", 1, 2),
        step("batch_matmul", 3, 4, transpose_b=False),
        step("tanh", 5),
    ),
    "turned": single("batch_matmul", (3, 21, 36), (1, 18, 36), transpose_b=True),
    "convolution": workload(
        [(1, 3, 17, 19), (24, 3, 7, 7), (24, 1, 1)],
        step("conv2d", 0, 1, **{**CONV, "strides": (2, 2), "padding": (3,) * 4}),
        step("add", 3, 2),
        step("relu", 4),
    ),
    "pointwise": single("conv2d", (2, 24, 6, 6), (20, 24, 1, 1), **CONV),
    "groups": single(
        "conv2d", (2, 6, 9, 7), (10, 3, 3, 3), **{**CONV, "padding": (1, 0, 2, 1), "groups": 2}
    ),
    "transposed": single(
        "conv2d_transpose", (1, 6, 5, 4), (6, 5, 4, 3),
        **{**CONV, "strides": (2, 2), "output_padding": (1, 0), "groups": 2},
    ),
}  # fmt: skip
TILES = dict(
    tile_rows=32, tile_columns=32, warp_rows=16, warp_columns=16, tile_depth=16, by_taps=False
)


def drawn(task: Workload, number: int) -> Settings:
    """One of sixty settings from all over the space."""
    found = some_settings(space_of(NAME, task, a_gpu()), 60)
    return found[number % len(found)]


def check(task: Workload, chosen: Settings) -> None:
    check_cuda_kernel(gpu_program(NAME, task, chosen), task, name=NAME)


@executes
@pytest.mark.parametrize("name", TASKS)
def test_settings_from_all_over_the_space(name: str) -> None:
    task = TASKS[name]
    check(task, drawn(task, 11 * list(TASKS).index(name)))


@executes
@pytest.mark.parametrize(("channels", "stages", "split"), [(8, 1, 1), (11, 2, 2)])
def test_tap_after_tap(channels: int, stages: int, split: int) -> None:
    chosen = {**TILES, "stages": stages, "split": split, "by_taps": True, "tile_depth": 8}
    conv = {**CONV, "strides": (1, 2), "padding": (1, 0, 1, 1)}
    check(single("conv2d", (1, channels, 7, 8), (9, channels, 3, 3), **conv), chosen)


@executes
@settings(max_examples=5, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 40), st.integers(0, 59))
def test_odd_products_on_matrix_units(rows: int, depth: int, columns: int, number: int) -> None:
    task = single("dense", (rows, depth), (depth, columns))
    check(task, drawn(task, number))


@executes
def test_factors_are_rounded_to_ten_bits() -> None:
    """1 + 2^-11, half-way between two neighbours, becomes the one further from zero, and what is
    less than half-way the nearer one; both would be cut off by an instruction that got singles."""
    task = single("dense", (1, 1), (1, 2))
    chosen = dict(
        tile_rows=16, tile_columns=8, warp_rows=16, warp_columns=8, tile_depth=8, stages=1, split=1,
        by_taps=False,
    )  # fmt: skip
    half, less = np.float32(1 + 2.0**-11), np.float32(1 + 2.0**-11 - 2.0**-20)
    arrays = [np.ones((1, 1), np.float32), np.array([[-half, less]], np.float32)]
    result = executed(gpu_program(NAME, task, chosen), task, arrays, 0)
    assert result.tolist() == [[-(1 + 2.0**-10), 1.0]]


def faulty(program: CudaProgram, old: str, new: str) -> CudaProgram:
    """The program with a fault in each place where a text stands."""
    assert old in program.source
    return replace(program, source=program.source.replace(old, new))


PRODUCT = single("dense", (40, 50), (50, 36))


@executes
@pytest.mark.parametrize("stages", [1, 2])
def test_a_removed_barrier_between_warps_is_caught(stages: int) -> None:
    program = gpu_program(NAME, PRODUCT, {**TILES, "stages": stages, "split": 1})
    first, *others = program.source.split("__syncthreads();")
    assert len(others) == 2
    for place in range(2):
        parts = [first, *others]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        text = "__syncthreads();".join(parts)
        with pytest.raises(KernelFault):
            executed(
                replace(program, source=text), PRODUCT, sample_arguments(PRODUCT, 0), seed=place
            )


@executes
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{%4, %5, %6, %7}", "{%4, %6, %5, %7}"),
        ("{%8, %9}", "{%9, %8}"),
        ("(half * 36)", "(half * 0)"),
    ],
)
def test_a_wrong_fragment_is_caught(old: str, new: str) -> None:
    program = gpu_program(NAME, PRODUCT, {**TILES, "stages": 1, "split": 1})
    arrays = sample_arguments(PRODUCT, 0)
    expected, scale = numpy_reference(PRODUCT, arrays)
    bound = implementation(NAME).error_bound(PRODUCT)
    right = executed(program, PRODUCT, arrays, 0)
    assert relative_error(right, expected, scale) <= bound
    wrong = executed(faulty(program, old, new), PRODUCT, arrays, 0)
    assert relative_error(wrong, expected, scale) > 10 * bound


@executes
def test_lanes_that_do_not_multiply_are_caught() -> None:
    """All lanes of a warp take part in its instructions."""
    program = gpu_program(NAME, PRODUCT, {**TILES, "stages": 1, "split": 1})
    some = faulty(program, "tf32_multiplied((&", "if (threadIdx.x % 8) tf32_multiplied((&")
    with pytest.raises(KernelFault):
        executed(some, PRODUCT, sample_arguments(PRODUCT, 0), 0)


LARGE = (
    single("dense", (512, 768), (768, 3072)),
    single("conv2d", (1, 64, 56, 56), (64, 64, 3, 3), **{**CONV, "padding": (1,) * 4}),
)


@compiles
@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
@pytest.mark.parametrize("task", LARGE, ids=["dense", "convolution"])
def test_fragments_and_sums_are_not_spilled(arch: str, task: Workload) -> None:
    """In the default setting, and in the best one with as many sums as a thread may have."""
    settings = listed(task, NAME, f"-arch={arch}")
    most = next(each for each in settings if each["warp_rows"] == each["warp_columns"] == 64)
    for chosen in (settings[0], most):
        source = gpu_program(NAME, task, chosen, a_gpu(f"-arch={arch}")).source
        for report in compiled_source(source, arch).reports.values():
            assert (report.spill_store_bytes, report.stack_bytes) == (0, 0), chosen


@compiles
def test_the_machine_code_multiplies_in_tf32() -> None:
    source = gpu_program(NAME, PRODUCT, {**TILES, "stages": 2, "split": 1}).source
    try:
        code = disassembled(compiled_source(source, "sm_90").binary)
    except TargetError as error:
        pytest.skip(str(error))
    assert "HMMA.1688.F32.TF32" in code
    assert "LDS.64" in code
    assert "LDL" not in code and "STL" not in code
