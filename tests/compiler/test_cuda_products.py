"""Products of matrices on GPUs: their text, executed on the CPU in three orders, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import check_cuda_kernel, executed
from helpers.kernels.gpu_kernels import a_gpu, check_facts_of_code, gpu_program, space_of
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.cuda.compilers import compiled_source
from tilewright.core.records import Settings
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler
from tilewright.testing.implementations import plain, some_settings

NAME = "cuda_product"
Shape = tuple[int, ...]
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")


def dense(rows: Shape, depth: int, columns: int, dtype: str = "float32") -> Workload:
    """With a bias and a residual behind it."""
    shapes = [(*rows, depth), (depth, columns), (columns,), (*rows, columns)]
    steps = (step("dense", 0, 1), step("add", 4, 2), step("gelu", 5), step("add", 6, 3))
    return workload([TensorType(shape, dtype) for shape in shapes], *steps)


def batched(left: Shape, right: Shape, *, turned: bool) -> Workload:
    """With a step before either operand and one behind the product."""
    steps = (
        step("relu", 0),
        step("multiply", 1, 2),
        step("batch_matmul", 3, 4, transpose_b=turned),
        step("tanh", 5),
    )
    return workload([left, right, (1,)], *steps)


def convolution(x: Shape, out: int, kernel: tuple[int, int] = (3, 3), **named) -> Workload:
    """With a bias, a residual and a relu."""
    plainest = dict(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)
    conv = step("conv2d", 0, 1, **(plainest | named))
    shapes = [x, (out, x[1] // dict(conv.attributes)["groups"], *kernel), (out, 1, 1)]
    result = workload(shapes[:2], conv).result.shape
    return workload([*shapes, result], conv, step("add", 4, 2), step("add", 5, 3), step("relu", 6))


def transposed(x: Shape, out: int, kernel: tuple[int, int], **named) -> Workload:
    plainest = dict(
        strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1, output_padding=(0, 0)
    )
    conv = step("conv2d_transpose", 0, 1, **(plainest | named))
    shapes = [x, (x[1], out // dict(conv.attributes)["groups"], *kernel), (out, 1, 1)]
    return workload(shapes, conv, step("add", 3, 2), step("relu", 4))


def drawn(task: Workload, number: int) -> Settings:
    """One of sixty settings from all over the space."""
    found = some_settings(space_of(NAME, task, a_gpu()), 60)
    return found[number % len(found)]


def check(task: Workload, chosen: Settings) -> None:
    check_cuda_kernel(gpu_program(NAME, task, chosen), task)


def deep() -> Workload:
    """Functions of functions, which are held in registers."""
    names = ("gelu", "tanh", "sigmoid", "exp", "softplus")
    behind = [step(name, 2 + place) for place, name in enumerate(names)]
    return workload([(19, 22), (22, 24)], step("dense", 0, 1), *behind, step("add", 7, 4))


TASKS = {
    "functions of functions": deep(),
    "prime dense": dense((3, 37), 53, 71),
    "dense in vectors": dense((70,), 52, 76),
    "one row": dense((1,), 301, 43),
    "one column": dense((61,), 33, 1),
    "half precision": dense((9,), 33, 20, "float16"),
    "bfloat16": dense((9,), 36, 20, "bfloat16"),
    "batched": batched((2, 3, 20, 33), (3, 33, 17), turned=False),
    "turned": batched((3, 21, 36), (1, 18, 36), turned=True),
    "one channel": convolution((2, 1, 13, 11), 5, padding=(1, 1, 1, 1)),
    "three channels": convolution((1, 3, 17, 19), 24, (7, 7), strides=(2, 2), padding=(3,) * 4),
    "four channels": convolution((1, 4, 9, 10), 33, dilation=(2, 1), padding=(2, 0, 1, 3)),
    "pointwise": convolution((2, 24, 6, 6), 20, (1, 1)),
    "pointwise with stride": convolution((1, 24, 7, 7), 9, (1, 1), strides=(2, 2)),
    "groups": convolution((2, 6, 9, 7), 10, strides=(2, 1), padding=(1, 0, 2, 1), groups=2),
    "depthwise": convolution((1, 5, 9, 8), 5, padding=(1,) * 4, groups=5),
    "transposed": transposed(
        (2, 6, 5, 4), 10, (4, 3), strides=(2, 2), padding=(1, 0, 0, 1), groups=2,
        output_padding=(1, 0),
    ),
    "transposed with missing taps": transposed((1, 5, 4, 6), 7, (2, 2), strides=(3, 2)),
    "transposed without stride": transposed((1, 3, 6, 6), 8, (3, 3), dilation=(1, 2)),
}  # fmt: skip


@executes
@pytest.mark.parametrize("name", TASKS)
def test_settings_from_all_over_the_space(name: str) -> None:
    task = TASKS[name]
    number = 7 * list(TASKS).index(name)
    check(task, drawn(task, number))


@executes
@pytest.mark.parametrize(
    ("channels", "depth", "stages", "split"), [(8, 8, 1, 1), (11, 8, 2, 2), (24, 16, 2, 1)]
)
def test_tap_after_tap(channels: int, depth: int, stages: int, split: int) -> None:
    tiles = dict(tile_rows=32, tile_columns=16, thread_rows=4, thread_columns=2)
    orders = {"tile_depth": depth, "stages": stages, "split": split, "by_taps": True}
    task = convolution((1, channels, 7, 8), 9, strides=(1, 2), padding=(1, 0, 1, 1))
    check(task, {**tiles, **orders})
    task = transposed((1, channels, 5, 4), 9, (3, 4), strides=(2, 2), padding=(1,) * 4)
    check(task, {**tiles, **orders})


@executes
@pytest.mark.parametrize(("columns", "stages", "split"), [(4, 1, 1), (6, 2, 1), (4, 1, 2)])
def test_functions_in_vectors(columns: int, stages: int, split: int) -> None:
    """What is held in registers on the way to results that are written four or two at a time."""
    tiles = dict(
        tile_rows=16, tile_columns=8, thread_rows=1, thread_columns=4, tile_depth=8, by_taps=False
    )
    task = dense((10,), 57, columns)
    check(task, {**tiles, "stages": stages, "split": split})


@executes
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 40), st.integers(0, 59))
def test_odd_products(rows: int, depth: int, columns: int, number: int) -> None:
    task = workload([(rows, depth), (depth, columns)], step("dense", 0, 1))
    check(task, drawn(task, number))


@executes
@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from((1, 3, 4, 24)),
    st.integers(1, 12),
    st.tuples(st.integers(5, 13), st.integers(5, 13)),
    st.tuples(st.integers(1, 2), st.integers(0, 2)),
    st.integers(0, 59),
)
def test_odd_convolutions(
    channels: int, out: int, plane: tuple[int, int], how: tuple[int, int], number: int
) -> None:
    stride, pad = how
    task = convolution(
        (1, channels, *plane), out, strides=(stride,) * 2, padding=(pad, 0, pad, pad)
    )
    check(task, drawn(task, number))


@pytest.mark.parametrize("stages", [1, 2])
@executes
def test_a_removed_barrier_is_caught(stages: int) -> None:
    task = workload([(40, 50), (50, 36)], step("dense", 0, 1))
    tiles = dict(
        tile_rows=32, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=8, by_taps=False
    )
    program = gpu_program(NAME, task, {**tiles, "stages": stages, "split": 1})
    first, *others = program.source.split("__syncthreads();")
    assert len(others) == 2
    for place in range(2):
        parts = [first, *others]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        text = "__syncthreads();".join(parts)
        with pytest.raises(KernelFault):
            executed(replace(program, source=text), task, sample_arguments(task, 0), seed=place)


LARGE = {
    "dense": dense((512,), 768, 3072),
    "convolution": convolution((1, 64, 56, 56), 64, padding=(1,) * 4),
    "transposed": transposed((1, 64, 14, 14), 32, (4, 4), strides=(2, 2), padding=(1,) * 4),
}


def best(task: Workload, number: int, described: str) -> Settings:
    """The setting with the least estimate, or one of sixty others."""
    on, spec = a_gpu(described), implementation(NAME)
    space = space_of(NAME, task, on)
    if number:
        return drawn(task, number)
    columns = space.columns(space.listed())
    known = facts(spec, task, on.target, on.resources, plain(task), columns)
    return columns[int(np.argmin(known["estimate_s"]))]


@pytest.mark.parametrize("name", LARGE)
def test_facts_agree_with_the_text(name: str) -> None:
    for number in (3, 17):
        chosen = {**drawn(LARGE[name], number), "split": 1}
        check_facts_of_code(NAME, LARGE[name], chosen, sectors=0.35)


@pytest.mark.skipif(bool(compiled_source("", "sm_90").reason), reason="no compiler of NVIDIA's")
@pytest.mark.parametrize(
    ("arch", "name", "number"),
    [
        ("sm_75", "dense", 0),
        ("sm_80", "convolution", 0),
        ("sm_90", "dense", 3),
        ("sm_90", "transposed", 0),
        ("sm_120", "convolution", 11),
    ],
)
def test_nothing_is_spilled(arch: str, name: str, number: int) -> None:
    task = LARGE[name]
    chosen = best(task, number, f"-arch={arch}")
    source = gpu_program(NAME, task, chosen, a_gpu(f"-arch={arch}")).source
    compiled = compiled_source(source, arch)
    assert not compiled.reason
    for report in compiled.reports.values():
        assert (report.spill_store_bytes, report.stack_bytes) == (0, 0), chosen
