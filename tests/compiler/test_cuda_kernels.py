"""CUDA text of TVM's schedules, executed on the CPU in three orders, against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import ORDERS, check_cuda_kernel, executed
from helpers.kernels.every_anchor import CASES
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.cuda.launches import cuda_program
from tilewright.compiler.lower import registry
from tilewright.core.records import Candidate
from tilewright.core.targets import threads_alone
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaLaunch, CudaProgram, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler, cuda_executable
from tilewright.testing.implementations import plain

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "cuda"
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)


def lowered(task: Workload, arch: str = "sm_90") -> tuple[str, CudaProgram]:
    """The rule of TVM's that applied, and its text."""
    import tvm

    target = gpu_target(parse_gpu(f"cuda -arch={arch}"))
    candidate = Candidate(implementation="cuda_default", settings=(), forms=plain(task))
    program, schedule = registry.lowered(task, candidate, target, threads_alone(target.cores))
    return program.rule, cuda_program(schedule.mod, tvm.target.Target(target.tvm))


def check(task: Workload, rule: str = "", arch: str = "sm_90") -> CudaProgram:
    applied, program = lowered(task, arch)
    assert rule in ("", applied)
    check_cuda_kernel(program, task, arch)
    return program


def convolution(
    pad: int,
    shape: tuple[int, ...] = (1, 3, 13, 11),
    out: int = 5,
    kernel: int = 3,
    stride: int = 1,
) -> Workload:
    named = dict(strides=(stride,) * 2, padding=(pad,) * 4, dilation=(1, 1), groups=1)
    shapes = [shape, (out, shape[1], kernel, kernel), (out, 1, 1)]
    return workload(shapes, step("conv2d", 0, 1, **named), step("add", 3, 2), step("relu", 4))


def product(rows: int, depth: int, columns: int, dtype: str = "float32") -> Workload:
    shapes = [TensorType(s, dtype) for s in ((rows, depth), (depth, columns))]
    return workload(shapes, step("dense", 0, 1))


def normalised(length: int) -> Workload:
    shapes = [(2, length), (length,), (length,)]
    return workload(shapes, step("layer_norm", 0, 1, 2, axis=1, epsilon=1e-5))


@pytest.mark.parametrize("name", [name for name in CASES if name != "recurrent"])
def test_every_anchor(name: str) -> None:
    """But for recurrent layers, whose intermediate arrays TVM leaves in the kernel, where CUDA has
    no place for them: it refuses to print the text."""
    shapes, anchor = CASES[name]
    check(workload([TensorType(s) for s in shapes], anchor, step("relu", len(shapes))))


WORKLOADS = {
    "convolution without padding": (convolution(0), "Matmul"),
    "convolution with padding": (convolution(1, (2, 16, 9, 9), 24), "Matmul"),
    "pointwise convolution": (convolution(0, (1, 40, 7, 7), 33, kernel=1, stride=2), "Matmul"),
    "one row": (product(1, 300, 70), ""),
    "half precision": (product(9, 33, 17, "float16"), "Matmul"),
    "long softmax": (workload([(3, 300)], step("softmax", 0, axis=1)), "GeneralReduction"),
    "layer norm": (normalised(300), "GeneralReduction"),
    "sum of rows": (
        workload([(300, 70)], step("reduce_sum", 0, axes=(0,), keepdims=False)),
        "Reduction",
    ),
    "mean of an image": (
        workload([(2, 5, 9, 9)], step("reduce_mean", 0, axes=(2, 3), keepdims=True)),
        "Reduction",
    ),
    "elementwise": (
        workload(
            [(3, 7, 5), (7, 1), (3, 7, 5)],
            *(step("multiply", 0, 1), step("add", 3, 2), step("gelu", 4), step("tanh", 5)),
        ),
        "Fallback",
    ),
    "transpose": (workload([(5, 33, 17)], step("transpose", 0, permutation=(2, 0, 1))), "Fallback"),
    "concatenation": (workload([(2, 3, 5), (2, 4, 5)], step("concat", 0, 1, axis=1)), "Fallback"),
    "padding": (
        workload([(3, 9)], step("pad", 0, before=(1, 2), after=(0, 3), mode="constant", value=0.5)),
        "",
    ),
    "whole numbers": (
        workload([TensorType((5, 9), "int32")] * 2, step("maximum", 0, 1), step("add", 2, 1)),
        "Fallback",
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_default_schedules(name: str) -> None:
    check(*WORKLOADS[name])


SMALL = st.integers(1, 40)


@settings(max_examples=3, deadline=None)
@given(SMALL, SMALL, SMALL)
def test_odd_products(rows: int, depth: int, columns: int) -> None:
    check(product(rows, depth, columns))


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2), st.integers(1, 7), st.integers(5, 13), st.integers(1, 2))
def test_odd_convolutions(pad: int, channels: int, height: int, stride: int) -> None:
    check(convolution(pad, (1, channels, height, 7), 3, kernel=5 if pad else 3, stride=stride))


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 5), st.integers(1, 700), st.booleans())
def test_odd_rows(rows: int, length: int, norm: bool) -> None:
    softmax = workload([(rows, length)], step("softmax", 0, axis=1))
    check(normalised(length) if norm else softmax)


# ------------------------------------------------------------------------------ planted faults

BARRIER = "__syncthreads();"


def without_barriers(source: str) -> list[str]:
    """The text without its first barrier, without its second one, and so on."""
    parts = source.split(BARRIER)
    return [
        BARRIER.join([*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]])
        for place in range(len(parts) - 1)
    ]


@pytest.mark.parametrize(
    ("task", "barriers", "needless"),
    [
        (product(70, 40, 50), 2, []),
        (workload([(3, 300)], step("softmax", 0, axis=1)), 6, [1, 4]),
    ],
    ids=["product", "softmax"],
)
def test_a_removed_barrier_is_caught(task: Workload, barriers: int, needless: list[int]) -> None:
    """But for those that TVM prints between a write of one thread and its own read."""
    _, program = lowered(task)
    arrays, missed = sample_arguments(task, 0), list[int]()
    texts = without_barriers(program.source)
    assert len(texts) == barriers
    for place, text in enumerate(texts):
        try:
            executed(replace(program, source=text), task, arrays, seed=place)
        except KernelFault:
            continue
        missed.append(place)
    assert missed == needless


# ------------------------------------------------------------------------------- Tensor Cores

TENSOR_CORES = (FIXTURES / "tensor_core_convolution.cu").read_text(encoding="utf-8")
"""What TVM prints for a 3×3 convolution of 64 channels at 14×14 with bias and relu, in a schedule
for Tensor Cores (sm_80): three stages of asynchronous copies, of which those in the padding are
predicated, shared memory with exchanged columns, ldmatrix, and mma.sync. It is kept as text, for
the import of TVM's intrinsics that the schedule needs takes half a minute."""


def run_convolution(source: str, seed: int) -> float:
    """The largest error, relative to the largest value."""
    rng = np.random.default_rng(0)
    shapes = {"X": (1, 14, 14, 64), "Wt": (64, 3, 3, 64), "bias": (64,)}
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    arrays = {name: array.astype(np.float16) for name, array in arrays.items()}
    out = np.full((1, 14, 14, 64), np.nan, np.float16)
    launch = CudaLaunch(
        kernel="main_kernel",
        grid=(4, 1, 1),
        block=(32, 4, 1),
        arguments=("Wt", "X", "bias", "out"),
        dynamic_shared_bytes=24_576,
    )
    cuda_executable(source, "sm_80").run([launch], arrays | {"out": out}, seed=seed)
    image, weights, bias = (arrays[name].astype(np.float32) for name in shapes)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [
        padded[:, r : r + 14, s : s + 14] @ weights[:, r, s].T for r in range(3) for s in range(3)
    ]
    expected = np.maximum(sum(parts) + bias, 0)
    return float(np.abs(out - expected).max() / expected.max())


@pytest.mark.parametrize("seed", ORDERS)
def test_a_convolution_on_tensor_cores(seed: int) -> None:
    assert run_convolution(TENSOR_CORES, seed) < 1e-3


@pytest.mark.parametrize("barrier", range(6))
def test_each_barrier_of_its_pipeline_is_missed(barrier: int) -> None:
    text = without_barriers(TENSOR_CORES)[barrier]
    with pytest.raises(KernelFault, match="a race|still under way"):
        run_convolution(text, barrier)


@pytest.mark.parametrize("number", [0, 1])
def test_a_wait_that_is_too_lax_is_caught(number: int) -> None:
    text = TENSOR_CORES.replace(f"wait_group {number};", f"wait_group {number + 1};")
    assert text != TENSOR_CORES
    with pytest.raises(KernelFault, match="asynchronous copy is still under way"):
        run_convolution(text, 0)
