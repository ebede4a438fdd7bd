"""CUDA code of operators in TVM's default schedules: what is read off it, without a GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

from helpers.kernels.every_anchor import CASES
from helpers.kernels.one_kernel import step, workload
from tilewright.compiler.cuda.code import cuda_code
from tilewright.compiler.cuda.compilers import nvrtc
from tilewright.core.records import Candidate
from tilewright.core.targets import Target, threads_alone
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaCode, CudaKernel, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.testing.implementations import plain

TARGET = gpu_target(parse_gpu("cuda -arch=sm_90"))
compiles = pytest.mark.skipif(
    shutil.which("nvcc") is None and nvrtc() is None, reason="neither nvcc nor NVRTC is here"
)


def convolution(pad: int, channels: int = 16, height: int = 30, kernel: int = 3) -> Workload:
    named = dict(strides=(1, 1), padding=(pad,) * 4, dilation=(1, 1), groups=1)
    shapes = [(1, channels, height, height), (64, channels, kernel, kernel)]
    return workload(shapes, step("conv2d", 0, 1, **named), step("relu", 2))


def inspected(task: Workload, *, compiled: bool = False) -> CudaCode:
    return code_for(task, TARGET, compiled=compiled)


def code_for(task: Workload, target: Target, *, compiled: bool) -> CudaCode:
    """TVM's own schedule."""
    candidate = Candidate(implementation="cuda_default", settings=(), forms=plain(task))
    resources = threads_alone(target.cores)
    return cuda_code(task, candidate, target, resources, compiled=compiled)


def only(code: CudaCode) -> CudaKernel:
    (kernel,) = code.kernels
    return kernel


@pytest.mark.parametrize("name", CASES)
def test_every_anchor_becomes_code_that_covers_its_result(name: str) -> None:
    shapes, anchor = CASES[name]
    task = workload([TensorType(s) for s in shapes], anchor, step("relu", len(shapes)))
    code = inspected(task)
    assert code.rule
    last = code.kernels[-1]
    assert last.blocks * last.threads * last.stores >= prod(task.types[-1].shape)
    for kernel in code.kernels:
        assert 0 <= kernel.guarded <= kernel.loads
        assert not kernel.loads or 1 <= kernel.sectors <= 64
        assert kernel.threads <= 1024


def test_a_padded_convolution_reads_its_input_behind_a_condition() -> None:
    bare, padded = only(inspected(convolution(0))), only(inspected(convolution(1)))
    # the end of a tile is asked about with one comparison, a border with one on each side
    assert padded.guarded >= bare.guarded > 0
    assert padded.comparisons >= 4 * bare.comparisons > 0


def test_threads_side_by_side_touch_full_sectors() -> None:
    kernel = only(inspected(workload([(1, 64, 32, 32)], step("relu", 0))))
    assert (kernel.loads, kernel.guarded, kernel.comparisons, kernel.stores) == (1, 0, 0, 1)
    assert kernel.sectors == 4
    assert kernel.parameters == ("argument0", "result")
    assert kernel.blocks * kernel.threads == 64 * 32 * 32


def test_a_transpose_touches_a_sector_for_each_thread() -> None:
    task = workload([(64, 64, 64)], step("transpose", 0, permutation=(0, 2, 1)))
    assert only(inspected(task)).sectors == 32


def test_shared_memory_of_a_tiled_product() -> None:
    task = workload([(256, 256), (256, 256)], step("dense", 0, 1))
    code = inspected(task)
    assert code.rule == "Matmul"
    assert only(code).shared_bytes > 0


def test_what_is_not_compiled_has_no_report() -> None:
    code = inspected(convolution(0))
    assert code.binary == b""
    assert code.reason
    assert only(code).report is None


@compiles
def test_the_compiler_reports_on_every_function() -> None:
    for task in (convolution(1), workload([(64, 300)], step("softmax", 0, axis=1))):
        code = inspected(task, compiled=True)
        assert code.reason == ""
        assert code.binary.startswith(b"\x7fELF")
        for kernel in code.kernels:
            assert kernel.report is not None
            assert 0 < kernel.report.registers <= 255
            assert kernel.name in code.source


@compiles
def test_what_the_compiler_refuses_leaves_the_rest() -> None:
    pascal = gpu_target(parse_gpu("cuda -arch=sm_60"))
    code = code_for(convolution(1), pascal, compiled=True)
    if code.reason == "":
        pytest.skip("this compiler still compiles for sm_60")
    assert "sm_60" in code.reason or "architecture" in code.reason
    assert only(code).loads > 0


def test_a_process_that_made_code_ends_well() -> None:
    """TVM keeps what is told of reductions until after Python has ended."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from compiler.test_cuda_code import *\n"
        "print(inspected(workload([(4, 30)], step('softmax', 0, axis=1))).rule)"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "GeneralReduction\n", "")
