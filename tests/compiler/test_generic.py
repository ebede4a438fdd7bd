"""The fallback computes every anchor, in every type, and leaves no naive loops."""

from __future__ import annotations

import numpy as np
import pytest
from one_kernel import DEVICE, random_arrays, run_kernel, step, workload

from tilewright.compiler.build import kernel_module
from tilewright.compiler.lower.anchors import RULES
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Step

WINDOW = dict(kernel=(3, 2), strides=(2, 2), padding=(1, 1, 1, 0), dilation=(1, 2))
CONV = dict(strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2), groups=2)
DECONV = dict(
    strides=(2, 2), padding=(1, 0, 0, 1), output_padding=(1, 0), dilation=(1, 1), groups=2
)
CASES: dict[str, tuple[list[tuple[int, ...]], Step]] = {
    "conv2d": ([(2, 6, 9, 8), (8, 3, 3, 3)], step("conv2d", 0, 1, **CONV)),
    "conv2d_transpose": ([(1, 6, 5, 4), (6, 4, 3, 3)], step("conv2d_transpose", 0, 1, **DECONV)),
    "dense": ([(3, 5, 7), (7, 16)], step("dense", 0, 1)),
    "batch_matmul": ([(2, 3, 4, 7), (3, 5, 7)], step("batch_matmul", 0, 1, transpose_b=True)),
    "max_pool2d": ([(1, 8, 9, 21)], step("max_pool2d", 0, **WINDOW)),
    "avg_pool2d": ([(1, 8, 9, 21)], step("avg_pool2d", 0, count_include_pad=False, **WINDOW)),
    "reduce_sum": ([(2, 8, 5, 5)], step("reduce_sum", 0, axes=(0, 2), keepdims=False)),
    "reduce_mean": ([(2, 8, 5, 5)], step("reduce_mean", 0, axes=(2, 3), keepdims=True)),
    "reduce_max": ([(2, 8, 5)], step("reduce_max", 0, axes=(0, 1, 2), keepdims=False)),
    "reduce_min": ([(2, 8, 5)], step("reduce_min", 0, axes=(1,), keepdims=False)),
    "reduce_prod": ([(2, 8, 5)], step("reduce_prod", 0, axes=(2,), keepdims=True)),
    "softmax": ([(2, 8, 5)], step("softmax", 0, axis=1)),
    "log_softmax": ([(2, 8, 5)], step("log_softmax", 0, axis=2)),
    "layer_norm": ([(2, 8, 5), (8, 5), (5,)], step("layer_norm", 0, 1, 2, axis=1, epsilon=1e-5)),
    "instance_norm": ([(2, 8, 5, 5), (8,), (8,)], step("instance_norm", 0, 1, 2, epsilon=1e-5)),
    "lrn": ([(2, 8, 5, 5)], step("lrn", 0, size=5, alpha=0.1, beta=0.75, bias=1.0)),
}
WHOLE = ("conv2d", "conv2d_transpose", "dense", "batch_matmul", "max_pool2d", "avg_pool2d",
         "reduce_sum", "reduce_mean", "reduce_max")  # fmt: skip


def test_every_anchor_has_a_rule_and_a_case() -> None:
    anchors = {name for name, operator in OPERATORS.items() if operator.anchor}
    assert anchors == set(RULES) == set(CASES)


def check(name: str, dtype: str, tolerance: float, written: str = "plain") -> None:
    shapes, anchor = CASES[name]
    task = workload([TensorType(s, dtype) for s in shapes], anchor, step("relu", len(shapes)))
    arrays = random_arrays(task)
    layouts = (*("plain",) * len(shapes), written)
    found, expected = run_kernel(task, "generic", arrays, layouts), run_workload(task, arrays)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12), ("float16", 2e-2)]
)
def test_anchor_in_floating_point(name: str, dtype: str, tolerance: float) -> None:
    check(name, dtype, tolerance)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_anchor_in_whole_numbers(name: str, dtype: str) -> None:
    check(name, dtype, 0)


@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "avg_pool2d", "softmax", "lrn"])
def test_blocked_result(name: str) -> None:
    check(name, "float32", 1e-5, "blocked4")


def test_large_convolution_is_parallel_and_vectorised_in_every_block() -> None:
    named = dict(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)
    task = workload(
        [(1, 16, 32, 32), (32, 16, 3, 3)], step("conv2d", 0, 1, **named), step("relu", 2)
    )
    candidate = Candidate(implementation="generic", settings=(), layouts=("plain",) * 3)
    text = kernel_module(task, candidate, DEVICE).script()
    assert text.count("T.parallel") == 3 and text.count("T.vectorized") >= 3
