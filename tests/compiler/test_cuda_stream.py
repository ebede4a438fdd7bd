"""Elementwise chains and movements for GPUs, executed in three orders and compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import executed
from helpers.kernels.cuda_settings import check_settings, listed, program
from helpers.kernels.one_kernel import step, workload
from tilewright.graph.network import TensorType
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler

NAME = "cuda_stream"
pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
NEAREST = dict(coordinate="asymmetric", rounding="floor")
RESIZED = step("resize_nearest", 0, shape=(1, 3, 10, 21), scales=(1.0, 1.0, 2.0, 3.0), **NEAREST)
PADDED = dict(before=(1, 2), after=(0, 3))
HALVES, WHOLE, DOUBLES = (TensorType((37, 41), kind) for kind in ("float16", "int32", "float64"))

WORKLOADS = {
    "broadcasts": workload(
        [(3, 7, 5), (7, 1), (3, 7, 5)], step("multiply", 0, 1), step("add", 3, 2), step("gelu", 4)
    ),
    "an odd number of elements": workload([(3, 227, 5)] * 2, step("add", 0, 1), step("relu", 2)),
    "many costly functions": workload(
        [(3, 27, 5)], *(step(it, i) for i, it in enumerate(("tanh", "exp", "sigmoid", "gelu")))
    ),
    "halves": workload([HALVES] * 2, step("add", 0, 1), step("gelu", 2)),
    "whole numbers": workload([WHOLE] * 2, step("maximum", 0, 1), step("add", 2, 1)),
    "doubles": workload([DOUBLES] * 2, step("multiply", 0, 1)),
    "planes to channels last": workload(
        [(2, 3, 11, 13)], step("transpose", 0, permutation=(0, 2, 3, 1)), step("relu", 1)
    ),
    "channels last to planes": workload(
        [(2, 11, 13, 3)], step("transpose", 0, permutation=(0, 3, 1, 2))
    ),
    "heads": workload(
        [(2, 24, 8)],
        step("reshape", 0, shape=(2, 24, 2, 4)),
        step("transpose", 1, permutation=(0, 2, 3, 1)),
        step("reshape", 2, shape=(16, 24)),
    ),
    "a matrix and its transposition": workload(
        [(45, 45)], step("transpose", 0, permutation=(1, 0)), step("add", 0, 1)
    ),
    "concatenation": workload(
        [(2, 3, 5), (2, 4, 5)], step("relu", 0), step("concat", 2, 1, axis=1)
    ),
    "padding": workload([(3, 9)], step("pad", 0, mode="constant", value=0.5, **PADDED)),
    "reflection": workload([(3, 9)], step("pad", 0, mode="reflect", value=0.0, **PADDED)),
    "slices": workload(
        [(3, 33, 15)],
        step("slice", 0, starts=(2, 1, 2), stops=(-1, 30, 15), steps=(-1, 1, 3)),
        step("expand", 1, shape=(2, 3, 29, 5)),
    ),
    "gathered rows": workload(
        [(50, 24), TensorType((9,), "int64")], step("gather", 0, 1, axis=0), step("tanh", 2)
    ),
    "resized": workload([(1, 3, 5, 7)], RESIZED),
    "normalised by neighbours": workload(
        [(2, 8, 5, 5)], step("lrn", 0, size=5, alpha=0.1, beta=0.75, bias=1.0), step("relu", 1)
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_give_numpys_numbers(name: str) -> None:
    check_settings(WORKLOADS[name], NAME)


SIDE = st.integers(1, 70)


@settings(max_examples=3, deadline=None)
@given(SIDE, SIDE, st.integers(1, 3), st.permutations(range(3)))
def test_odd_transpositions(first: int, second: int, images: int, order: list[int]) -> None:
    task = workload([(images, first, second)], step("transpose", 0, permutation=tuple(order)))
    check_settings(task, NAME, 3)


def test_the_barrier_of_a_tile_is_missed() -> None:
    task = workload([(70, 45)], step("transpose", 0, permutation=(1, 0)))
    tiled = next(one for one in listed(task, NAME) if one["tiled"])
    built = program(task, NAME, tiled)
    assert built.source.count("__syncthreads();") == 1
    broken = replace(built, source=built.source.replace("__syncthreads();", ""))
    with pytest.raises(KernelFault):
        executed(broken, task, sample_arguments(task, 0), seed=0)


def test_loads_and_stores_are_vectors() -> None:
    task = workload([(64, 96), (64, 96), (96,)], step("add", 0, 1), step("multiply", 3, 2))
    four = next(one for one in listed(task, NAME) if one["vector"] == 4 and one["vectors"] == 1)
    text = program(task, NAME, four).source
    assert text.count("*(float4*)(argument") == 3 and text.count("*(float4*)(result") == 1
