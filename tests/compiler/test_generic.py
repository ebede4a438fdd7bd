"""The fallback computes every anchor, in every type, and leaves no naive loops."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.every_anchor import CASES
from helpers.kernels.one_kernel import PLACEMENT, random_arrays, run_kernel, step, workload
from tilewright.compiler.build import kernel_module
from tilewright.compiler.lower.anchors import RULES
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.operators import OPERATORS

WHOLE = ("conv2d", "conv2d_transpose", "dense", "batch_matmul", "max_pool2d", "avg_pool2d",
         "reduce_sum", "reduce_mean", "reduce_max")  # fmt: skip


def test_every_anchor_has_a_rule_and_a_case() -> None:
    anchors = {name for name, operator in OPERATORS.items() if operator.anchor}
    assert anchors == set(RULES)
    assert anchors - {"quantized_attention"} == set(CASES), "see test_attention_int8"


def check(name: str, dtype: str, tolerance: float, written: Form = PLAIN) -> None:
    shapes, anchor = CASES[name]
    task = workload([TensorType(s, dtype) for s in shapes], anchor, step("relu", len(shapes)))
    arrays = random_arrays(task)
    forms = (*(PLAIN,) * len(shapes), written)
    found, expected = run_kernel(task, "generic", arrays, forms), run_workload(task, arrays)
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
    check(name, "float32", 1e-5, blocked(4))


def test_large_convolution_is_parallel_and_vectorised_in_every_block() -> None:
    named = dict(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)
    task = workload(
        [(1, 16, 32, 32), (32, 16, 3, 3)], step("conv2d", 0, 1, **named), step("relu", 2)
    )
    candidate = Candidate(implementation="generic", settings=(), forms=(PLAIN,) * 3)
    text = kernel_module(task, candidate, PLACEMENT.target, PLACEMENT.resources).script()
    assert text.count("T.parallel") == 3 and text.count("T.vectorized") >= 3
