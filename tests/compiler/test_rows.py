"""Row kernels against numpy: reductions, softmax, normalisations, in every layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.kernels.one_kernel import (
    PLACEMENT,
    all_settings,
    random_arrays,
    run_kernel,
    step,
    workload,
)
from tilewright.compiler.build import kernel_module
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.workload import Workload
from tilewright.kernels.rows import operand_frame

CHAIN = {
    "softmax": lambda: step("softmax", 0, axis=1),
    "log_softmax": lambda: step("log_softmax", 0, axis=1),
    "layer_norm": lambda: step("layer_norm", 0, 1, 2, axis=1, epsilon=1e-5),
    "rms_norm": lambda: step("rms_norm", 0, 1, axis=1, epsilon=1e-5),
    "instance_norm": lambda: step("instance_norm", 0, 1, 2, epsilon=1e-5),
    "lrn": lambda: step("lrn", 0, size=5, alpha=0.3, beta=0.75, bias=1.0),
    "mean": lambda: step("reduce_mean", 0, axes=(2, 3), keepdims=True),
}


def check(
    task: Workload, forms: tuple[Form, ...] = (), chosen: dict | None = None, *, exact: bool = False
) -> None:
    """With `exact` operands are multiples of 1/64, of which sums are exact in any order: others
    cancel out to nearly nothing now and then, but for what rounding leaves."""
    arrays = random_arrays(task)
    if exact:
        arrays = [np.round(64 * array) / np.float32(64) for array in arrays]
    found, expected = run_kernel(task, "rows", arrays, forms, chosen), run_workload(task, arrays)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_reduction_over_any_axes(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 19), min_size=1, max_size=4)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    name = data.draw(st.sampled_from(["sum", "mean", "max", "min", "prod"]))
    kept = data.draw(st.booleans())
    task = workload([shape], step(f"reduce_{name}", 0, axes=tuple(sorted(axes)), keepdims=kept))
    choices = all_settings(task, "rows", (PLAIN, PLAIN))
    chosen = data.draw(st.sampled_from(choices))
    check(task, (PLAIN, PLAIN), chosen, exact=name in ("sum", "mean"))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=3), st.integers(0, 2), st.booleans())
def test_softmax_over_any_axis(shape: list[int], axis: int, log: bool) -> None:
    name = "log_softmax" if log else "softmax"
    check(workload([tuple(shape)], step(name, 0, axis=axis % len(shape)), step("relu", 1)))


@pytest.mark.parametrize("length", [8, 15, 24, 33, 40, 56, 70, 130, 197])
@pytest.mark.parametrize("lanes", [8, 16])
def test_rows_that_registers_do_not_divide(length: int, lanes: int) -> None:
    """Every number of partial sums: whole runs, whole registers, and what is left."""
    task = workload([(3, length)], step("softmax", 0, axis=1))
    arrays = random_arrays(task)
    wide = altered(PLACEMENT, vector_bytes=4 * lanes)
    for chosen in all_settings(task, "rows", (PLAIN, PLAIN)):
        found = run_kernel(task, "rows", arrays, (PLAIN, PLAIN), chosen, placement=wide)
        np.testing.assert_allclose(found, run_workload(task, arrays), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CHAIN)
@pytest.mark.parametrize("read", [PLAIN, blocked(4), blocked(8)])
@pytest.mark.parametrize("written", [PLAIN, blocked(8)])
def test_layouts(name: str, read: Form, written: Form) -> None:
    shapes: list[tuple[int, ...]] = [(2, 16, 5, 7)]
    if name == "layer_norm":
        shapes += [(16, 5, 7), (7,)]
    if name == "rms_norm":
        shapes += [(16, 5, 7)]
    if name == "instance_norm":
        shapes += [(16,), (16,)]
    task = workload(shapes, CHAIN[name]())
    check(task, (read, *(PLAIN,) * (len(shapes) - 1), written))


@pytest.mark.parametrize("length", [1, 3, 8, 100, 768])
def test_layer_norm_of_rows_with_epilogue(length: int) -> None:
    check(
        workload(
            [(2, 3, length), (length,), (length,), (length,)],
            step("layer_norm", 0, 1, 2, axis=2, epsilon=1e-5),
            step("add", 4, 3),
            step("gelu", 5),
        )
    )


@pytest.mark.parametrize("axes", [(0, 1), (2,), (1, 2)])
def test_reductions_of_what_is_computed_on_the_way(axes: tuple[int, ...]) -> None:
    check(
        workload(
            [(3, 5, 37), (37,)],
            step("add", 0, 1),
            step("multiply", 2, 2),
            step("reduce_sum", 3, axes=axes, keepdims=True),
            step("sqrt", 4),
        )
    )


def test_what_is_computed_on_the_way_is_reduced_in_its_layout() -> None:
    on_the_way = [step("relu", 0), step("reduce_mean", 1, axes=(2, 3), keepdims=True)]
    task, forms = workload([(2, 16, 5, 7)], *on_the_way), (blocked(8), blocked(8))
    assert not operand_frame(task, forms).across
    check(task, forms)


def test_softmax_of_large_values_stays_finite() -> None:
    task = workload([(2, 20)], step("softmax", 0, axis=1))
    x = np.full((2, 20), 1e4, np.float32)
    np.testing.assert_allclose(run_kernel(task, "rows", [x]), 0.05, rtol=1e-6)


def test_lrn_with_even_size_and_general_exponent() -> None:
    task = workload([(1, 6, 4, 5)], step("lrn", 0, size=4, alpha=0.5, beta=0.6, bias=2.0))
    check(task)
    check(task, (blocked(2), blocked(2)))


def test_one_parallel_region_and_vectors() -> None:
    task = workload([(64, 256)], step("softmax", 0, axis=1))
    forms = (PLAIN, PLAIN)
    chosen = tuple(all_settings(task, "rows", forms)[0].items())
    candidate = Candidate(implementation="rows", settings=chosen, forms=forms)
    text = kernel_module(task, candidate, PLACEMENT.target, PLACEMENT.resources).script()
    assert text.count("T.parallel") == 1
    assert text.count("T.vectorized") >= 3
