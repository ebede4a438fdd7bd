"""Products and windows on GPUs whose operands come by asynchronous copies: executed in three
orders, with waits and barriers that are missing or too lax, and compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from helpers.kernels.cuda_images import image_convolution, offered
from helpers.kernels.cuda_kernels import check_cuda_kernel, executed
from helpers.kernels.cuda_settings import check_compiled, program
from helpers.kernels.gpu_kernels import a_gpu, gpu_program
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.builders.cuda import program_of
from tilewright.compiler.cuda.compilers import compiled_source, disassembled, missing_compiler
from tilewright.core.errors import TargetError
from tilewright.core.forms import CHANNELS_LAST
from tilewright.core.records import Settings
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler
from tilewright.testing.implementations import candidate_of, single

SINGLES, TF32, WINDOW = "cuda_product_async", "cuda_product_tf32_async", "cuda_window"
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
compiles = pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
CONV = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)
TILES = dict(tile_rows=32, tile_columns=16, tile_depth=8, split=1, by_taps=False)
SIZES = {
    SINGLES: {**TILES, "thread_rows": 4, "thread_columns": 2},
    TF32: {**TILES, "warp_rows": 16, "warp_columns": 16},
}
ODD = {"strides": (1, 2), "padding": (1, 0, 2, 1)}
TASKS: dict[str, tuple[Workload, Settings]] = {
    "vectors of four": (single("dense", (40, 50), (50, 36)), {"stages": 3}),
    "vectors of two": (single("dense", (21, 44), (44, 38)), {"stages": 2, "split": 2}),
    "lines that begin anywhere": (single("dense", (37, 35), (35, 43)), {"stages": 4}),
    "views before it": (
        workload(
            [(2, 31, 3, 20), (3, 20, 17)],
            step("transpose", 0, permutation=(0, 2, 1, 3)),
            step("reshape", 2, shape=(6, 31, 20)),
            step("slice", 3, starts=(1, 0, 0), stops=(4, 31, 20), steps=(1, 1, 1)),
            *(step("batch_matmul", 4, 1, transpose_b=False), step("tanh", 5)),
        ),
        {"stages": 2},
    ),
    "turned": (
        single("batch_matmul", (3, 21, 36), (1, 18, 36), transpose_b=True),
        {"stages": 4},
    ),
    "convolution": (
        workload(
            [(1, 3, 17, 18), (19, 3, 5, 5), (19, 1, 1)],
            *(step("conv2d", 0, 1, **{**CONV, **ODD}), step("add", 3, 2), step("relu", 4)),
        ),
        {"stages": 3},
    ),
    "tap after tap": (
        single("conv2d", (1, 11, 7, 8), (9, 11, 3, 3), **{**CONV, **ODD}),
        {"stages": 3, "by_taps": True, "split": 2},
    ),
    "transposed": (
        single(
            "conv2d_transpose", (1, 6, 5, 4), (6, 5, 4, 3),
            **{**CONV, "strides": (2, 2), "output_padding": (1, 0), "groups": 2},
        ),
        {"stages": 2},
    ),
}  # fmt: skip


@executes
@pytest.mark.parametrize("name", [SINGLES, TF32])
@pytest.mark.parametrize("task", TASKS)
def test_results_are_right(name: str, task: str) -> None:
    made, settings = TASKS[task]
    text = gpu_program(name, made, {**SIZES[name], **settings})
    assert "cp.async.wait_group" in text.source
    bound = "generic" if name == SINGLES else name
    check_cuda_kernel(text, made, name=bound)


@executes
@pytest.mark.parametrize("name", [SINGLES, TF32])
def test_images_with_their_channels_last(name: str) -> None:
    task, on = image_convolution((1, 12, 6, 7), 20, padding=(1, 0, 1, 1)), a_gpu()
    forms = next(it for it in offered(name, task) if it[0] == it[-1] == CHANNELS_LAST)
    candidate = candidate_of(implementation(name), {**SIZES[name], "stages": 3}, forms)
    made = program_of(task, candidate, on.target, on.resources)
    bound = "generic" if name == SINGLES else name
    check_cuda_kernel(made, task, name=bound, candidate=candidate)


WINDOWS = {
    "maxima": workload(
        [(1, 8, 9, 21)],
        step("max_pool2d", 0, kernel=(3, 2), strides=(2, 2), padding=(1, 1, 1, 0), dilation=(1, 2)),
    ),
    "filters": single(
        "conv2d", (2, 5, 7, 9), (10, 1, 5, 5),
        **{**CONV, "strides": (1, 2), "padding": (2,) * 4, "groups": 5},
    ),
}  # fmt: skip
STAGED = {"threads": 64, "rows": 2, "columns": 2, "staged": 2}


@executes
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_right(name: str) -> None:
    check_cuda_kernel(program(WINDOWS[name], WINDOW, STAGED), WINDOWS[name])


KERNELS = {
    **{
        f"{name}, {stages} stages": (TASKS["vectors of four"][0], name, {"stages": stages})
        for name, stages in ((SINGLES, 2), (SINGLES, 3), (SINGLES, 4), (TF32, 3))
    },
    "window": (WINDOWS["filters"], WINDOW, STAGED),
}


def without_waits(text: str) -> str:
    return re.sub(r"cp\.async\.wait_group \d;", "", text)


def with_lax_waits(text: str) -> str:
    """Each leaves a group more on its way."""
    return re.sub(r"wait_group (\d)", lambda found: f"wait_group {int(found[1]) + 1}", text)


def without_barriers(text: str) -> str:
    assert text.count("__syncthreads();") == 1
    return text.replace("__syncthreads();", "")


@executes
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("fault", [without_waits, with_lax_waits, without_barriers])
def test_a_fault_is_caught(name: str, fault: Callable[[str], str]) -> None:
    task, spec, settings = KERNELS[name]
    made = gpu_program(spec, task, {**SIZES.get(spec, {}), **settings})
    text = fault(made.source)
    assert text != made.source
    with pytest.raises(KernelFault, match="still under way|a race|which no thread has written"):
        executed(replace(made, source=text), task, sample_arguments(task, 0), 0)


@executes
@pytest.mark.parametrize("name", [f"{SINGLES}, 3 stages", "window"])
def test_what_lies_beyond_an_extent_is_not_read(name: str) -> None:
    """Where it is, another array is read, or what lies beside a row."""
    task, spec, settings = KERNELS[name]
    made = gpu_program(spec, task, {**SIZES.get(spec, {}), **settings})
    text = re.sub(r"(condval\w* = )0;", r"\g<1>4;", made.source)
    arguments = sample_arguments(task, 0)
    right = executed(made, task, arguments, 0)
    try:
        wrong = executed(replace(made, source=text), task, arguments, 0)
    except KernelFault as fault:
        assert "of argument" in str(fault)
    else:
        assert (right != wrong).any()


LARGE = (
    single("dense", (512, 768), (768, 3072)),
    single("conv2d", (1, 64, 56, 56), (64, 64, 3, 3), **{**CONV, "padding": (1,) * 4}),
)


@compiles
@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_nothing_is_spilled(arch: str) -> None:
    check_compiled([(task, name) for task in LARGE for name in (SINGLES, TF32)], arch)


@compiles
def test_the_machine_code_copies_beside_threads() -> None:
    text = gpu_program(SINGLES, TASKS["vectors of four"][0], {**SIZES[SINGLES], "stages": 3}).source
    try:
        code = disassembled(compiled_source(text, "sm_90").binary)
    except TargetError as error:
        pytest.skip(str(error))
    assert "LDGSTS.E.BYPASS.128" in code and "LDGDEPBAR" in code and "DEPBAR.LE" in code
    assert "STS" not in code.replace("LDGSTS", "")
