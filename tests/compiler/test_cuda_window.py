"""Pooling and depthwise convolution for GPUs, executed in three orders and compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import executed
from helpers.kernels.cuda_settings import check_settings, listed, program
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler

NAME = "cuda_window"
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
ODD = dict(kernel=(3, 2), strides=(2, 2), padding=(1, 1, 1, 0), dilation=(1, 2))
WIDE = dict(kernel=(11, 13), strides=(1, 1), padding=(5, 6, 5, 0), dilation=(1, 1))


def pool(name: str, shape: tuple[int, ...], dtype: str = "float32", **named) -> Workload:
    counted = {} if name == "max" else {"count_include_pad": False}
    return workload(
        [TensorType(shape, dtype)], step(f"{name}_pool2d", 0, **named, **counted), step("relu", 1)
    )


def depthwise(
    shape: tuple[int, ...], filters: int, kernel: tuple[int, int], pad: int, *strides: int
) -> Workload:
    named = dict(strides=strides, padding=(pad,) * 4, dilation=(1, 1), groups=shape[1])
    shapes = [shape, (filters, 1, *kernel), (filters, 1, 1)]
    return workload(shapes, step("conv2d", 0, 1, **named), step("add", 3, 2), step("gelu", 4))


WORKLOADS = {
    "maxima": pool("max", (1, 8, 9, 21), **ODD),
    "averages": pool("avg", (1, 8, 9, 21), **ODD),
    "of large windows": pool("avg", (1, 3, 15, 15), **WIDE),
    "along one axis": pool(
        "max", (1, 4, 1, 50), kernel=(1, 5), strides=(1, 3), padding=(0, 2, 0, 2), dilation=(1, 1)
    ),
    "bytes": pool("max", (1, 4, 10, 12), "int8", **ODD),
    "doubles": pool("avg", (1, 4, 10, 12), "float64", **ODD),
    "three by three": depthwise((2, 6, 14, 16), 6, (3, 3), 1, 1, 1),
    "two filters a channel": depthwise((2, 5, 7, 7), 10, (5, 5), 2, 1, 2),
    "halves": workload(
        [TensorType((1, 4, 10, 12), "float16"), TensorType((4, 1, 3, 3), "float16")],
        step("conv2d", 0, 1, strides=(2, 1), padding=(0, 1, 2, 1), dilation=(2, 1), groups=4),
        *(step("gelu", 2), step("tanh", 3), step("sigmoid", 4)),
    ),
    "between other steps": workload(
        [(1, 4, 12, 10), (1, 4, 1, 1), (4, 1, 3, 3), (1, 4, 10, 12)],
        *(step("transpose", 0, permutation=(0, 1, 3, 2)), step("multiply", 4, 1)),
        step("conv2d", 5, 2, strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=4),
        step("add", 6, 3),
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_give_numpys_numbers(name: str) -> None:
    check_settings(WORKLOADS[name], NAME)


@settings(max_examples=3, deadline=None)
@given(
    st.tuples(st.integers(3, 20), st.integers(3, 20)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(0, 2),
    st.integers(1, 3),
    st.booleans(),
)
def test_odd_windows(
    plane: tuple[int, int], kernel: tuple[int, int], pad: int, stride: int, weighted: bool
) -> None:
    pad = min(pad, *(side - 1 for side in kernel))
    if weighted:
        task = depthwise((2, 3, *plane), 6, kernel, pad, stride, 1)
    else:
        named = dict(strides=(1, stride), padding=(pad,) * 4, dilation=(1, 1))
        task = pool("avg", (2, 3, *plane), kernel=kernel, **named)
    check_settings(task, NAME, 3)


def test_the_barrier_of_a_staged_tile_is_missed() -> None:
    task = WORKLOADS["three by three"]
    built = program(task, NAME, next(one for one in listed(task, NAME) if one["staged"]))
    assert built.source.count("__syncthreads();") == 1
    broken = replace(built, source=built.source.replace("__syncthreads();", ""))
    with pytest.raises(KernelFault):
        executed(broken, task, sample_arguments(task, 0), seed=0)
