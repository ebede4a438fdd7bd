"""Kernels for GPUs that memory limits, compiled for four architectures: nothing is spilled."""

from __future__ import annotations

import pytest

from helpers.kernels.cuda_settings import check_compiled
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType

NORM = dict(axis=1, epsilon=1e-5)
WINDOW = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=8)
HALVES = TensorType((64, 96), "float16")
TASKS = [
    (workload([HALVES] * 2, step("add", 0, 1), step("gelu", 2)), "cuda_stream"),
    (workload([(65, 96)] * 3, step("add", 0, 1), step("multiply", 3, 2)), "cuda_stream"),
    (workload([(8, 33, 65)], step("transpose", 0, permutation=(0, 2, 1))), "cuda_stream"),
    (
        workload([(64, 4096), (4096,), (4096,)], step("layer_norm", 0, 1, 2, **NORM)),
        "cuda_rows",
    ),
    (workload([(8, 128, 256)], step("softmax", 0, axis=1), step("gelu", 1)), "cuda_rows"),
    (
        workload([(1, 8, 28, 28), (8, 1, 3, 3)], step("conv2d", 0, 1, **WINDOW), step("relu", 2)),
        "cuda_window",
    ),
    (
        workload([(3, 4, 512), (3, 512, 64)], step("batch_matmul", 0, 1, transpose_b=False)),
        "cuda_vector",
    ),
]


@pytest.mark.parametrize(
    "arch",
    [
        "sm_75",
        *(pytest.param(it, marks=pytest.mark.on_request) for it in ("sm_80", "sm_90")),
        "sm_120",
    ],
)
def test_nothing_is_spilled(arch: str) -> None:
    check_compiled(TASKS, arch)
