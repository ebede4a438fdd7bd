"""Pooling kernels against numpy: windows, strides, padding, dilation, layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import all_settings, random_arrays, run_kernel, step, workload
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload

FORMS = [PLAIN, blocked(4), blocked(8)]


def check(task: Workload, forms: tuple[Form, ...], chosen: dict | None = None) -> None:
    arrays = random_arrays(task)
    found = run_kernel(task, "pool2d_rows", arrays, forms, chosen)
    np.testing.assert_allclose(found, run_workload(task, arrays), rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_window(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    kernel, strides, dilation = pair(1, 8), pair(1, 3), pair(1, 2)
    padding = (*pair(0, 2), *pair(0, 2))
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    shape = (1, 8, span[0] + data.draw(st.integers(0, 9)), span[1] + data.draw(st.integers(0, 20)))
    named = dict(kernel=kernel, strides=strides, padding=padding, dilation=dilation)
    if data.draw(st.booleans()):
        anchor = step("avg_pool2d", 0, count_include_pad=data.draw(st.booleans()), **named)
    else:
        anchor = step("max_pool2d", 0, **named)
    task = workload([shape], anchor, step("tanh", 1))
    forms = (data.draw(st.sampled_from(FORMS)), data.draw(st.sampled_from(FORMS)))
    choices = all_settings(task, "pool2d_rows", forms)
    check(task, forms, data.draw(st.sampled_from(choices)))


@pytest.mark.parametrize("form", FORMS)
def test_window_entirely_in_the_border(form: Form) -> None:
    named = dict(kernel=(2, 2), strides=(3, 3), padding=(2, 2, 2, 2), dilation=(1, 1))
    check(workload([(1, 8, 6, 6)], step("max_pool2d", 0, **named)), (form, form))
    mean = step("avg_pool2d", 0, count_include_pad=False, **named)
    check(workload([(1, 8, 6, 6)], mean), (form, form))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float64"])
def test_maximum_of_other_types(dtype: str) -> None:
    named = dict(kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), dilation=(1, 1))
    task = workload([TensorType((1, 8, 9, 9), dtype)], step("max_pool2d", 0, **named))
    for form in (PLAIN, blocked(8)):
        check(task, (form, form))


def test_residual_after_the_pool_may_have_another_layout() -> None:
    named = dict(kernel=(2, 2), strides=(2, 2), padding=(0, 0, 0, 0), dilation=(1, 1))
    task = workload([(2, 8, 8, 8), (2, 8, 4, 4)], step("max_pool2d", 0, **named), step("add", 2, 1))
    check(task, (blocked(8), PLAIN, blocked(8)))
    check(task, (PLAIN, blocked(4), PLAIN))
