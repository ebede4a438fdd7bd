"""Reductions, softmax and normalisations for GPUs, executed in three orders and compiled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import check_cuda_kernel
from helpers.kernels.cuda_settings import check_settings, faults_without, listed, program
from helpers.kernels.one_kernel import step, workload
from tilewright.core.records import Settings
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.testing.cuda_execution import compiler

NAME = "cuda_rows"
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)


def reduced(name: str, shape: tuple[int, ...], *axes: int, dtype: str = "float32") -> Workload:
    kind = TensorType(shape, dtype)
    return workload([kind], step(f"reduce_{name}", 0, axes=axes, keepdims=len(axes) == 2))


NORM = dict(epsilon=1e-5)
LAYER_NORM = workload(
    [(6, 8, 36), (8, 36), (36,), (6, 8, 36)],
    *(step("add", 0, 3), step("layer_norm", 4, 1, 2, axis=1, **NORM), step("add", 5, 3)),
)
WORKLOADS = {
    "softmax": workload([(3, 300)], step("softmax", 0, axis=1)),
    "softmax of columns": workload([(2, 70, 24)], step("softmax", 0, axis=1), step("relu", 1)),
    "log softmax": workload(
        [(2, 8, 5), (1,)], step("multiply", 0, 1), step("log_softmax", 2, axis=2)
    ),
    "layer norm": LAYER_NORM,
    "rms norm": workload([(5, 700), (700,)], step("rms_norm", 0, 1, axis=1, **NORM)),
    "instance norm": workload(
        [(2, 8, 9, 12), (8,), (8,)],
        *(step("instance_norm", 0, 1, 2, **NORM), step("gelu", 3), step("tanh", 4)),
    ),
    "sum of columns": reduced("sum", (300, 72), 0),
    "sum of images and rows": reduced("sum", (2, 8, 5, 8), 0, 2),
    "mean of images": reduced("mean", (1, 3, 70, 50), 2, 3),
    "largest of all": reduced("max", (2, 8, 5), 0, 1, 2),
    "smallest": reduced("min", (2, 8, 5), 1),
    "product": reduced("prod", (2, 8, 5), 2),
    "halves": workload([TensorType((40, 64), "float16")], step("softmax", 0, axis=1)),
    "doubles": reduced("sum", (7, 129), 1, dtype="float64"),
    "whole numbers": reduced("max", (40, 64), 1, dtype="int64"),
}


_MORE = frozenset(
    {"sum of columns", "mean of images", "smallest", "product", "whole numbers", "rms norm"}
)
"""Much like others."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.on_request if n in _MORE else ()) for n in WORKLOADS],
)
def test_settings_give_numpys_numbers(name: str) -> None:
    check_settings(WORKLOADS[name], NAME)


@settings(max_examples=3, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=3),
    st.integers(0, 2),
    st.sampled_from(["softmax", "reduce_mean", "layer_norm"]),
)
def test_odd_rows(shape: list[int], axis: int, name: str) -> None:
    axis = min(axis, len(shape) - 1)
    task = {
        "softmax": lambda: workload([tuple(shape)], step("softmax", 0, axis=axis)),
        "reduce_mean": lambda: reduced("mean", tuple(shape), axis),
        "layer_norm": lambda: workload(
            [tuple(shape), tuple(shape[axis:]), tuple(shape[axis:])],
            step("layer_norm", 0, 1, 2, axis=axis, **NORM),
        ),
    }[name]()
    check_settings(task, NAME, 3)


def one_with(task: Workload, **wanted: int) -> Settings:
    return next(
        one for one in listed(task, NAME) if all(one[key] == it for key, it in wanted.items())
    )


def test_each_barrier_is_missed() -> None:
    task = WORKLOADS["softmax"]
    wide = one_with(task, row_threads=128, split=1, kept=1)
    assert faults_without(task, NAME, wide, "__syncthreads();") >= 2
    columns = WORKLOADS["softmax of columns"]
    apart = one_with(columns, row_threads=8, split=1)
    assert faults_without(columns, NAME, apart, "__syncthreads();") >= 2


def test_a_mask_without_half_of_the_lanes_is_caught() -> None:
    task = WORKLOADS["softmax"]
    setting = one_with(task, row_threads=32, split=1, kept=1)
    assert faults_without(task, NAME, setting, "(uint)4294967295", "(uint)65535") == 10


def test_a_split_row_takes_a_kernel_for_each_combination() -> None:
    task = WORKLOADS["mean of images"]
    split = one_with(task, split=4)
    built = program(task, NAME, split)
    assert [launch.kernel for launch in built.launches] == ["main_kernel", "main_kernel_1"]
    assert built.launches[0].grid[0] == 4 * built.launches[1].grid[0]
    assert built.workspaces == {"partial0": (3 * 4, "float32")}
    columns = WORKLOADS["sum of columns"]  # vectors of rows, which TVM allocates as such
    built = program(columns, NAME, one_with(columns, split=4, vector=4))
    assert built.workspaces == {"partial0": (72 * 4, "float32")}
    check_cuda_kernel(built, columns)
    softmax = WORKLOADS["softmax"]
    assert len(program(softmax, NAME, one_with(softmax, split=2)).launches) == 3
