"""Elementwise, layout change and concatenation kernels against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import PLACEMENT, random_arrays, run_kernel, step, workload
from tilewright.compiler.build import kernel_module, rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.measure.targeting import placement_of

HERE = local_placement()
FORMS = [PLAIN, blocked(2), blocked(4), blocked(8)]


def check(task: Workload, forms: tuple[Form, ...]) -> None:
    arrays = random_arrays(task)
    found = run_kernel(task, "injective", arrays, forms)
    np.testing.assert_allclose(found, run_workload(task, arrays), rtol=1e-5, atol=1e-6)


def module_text(task: Workload, forms: tuple[Form, ...]) -> str:
    candidate = Candidate(implementation="injective", settings=(("vector", 8),), forms=forms)
    return kernel_module(task, candidate, PLACEMENT.target, PLACEMENT.resources).script()


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(FORMS), st.sampled_from(FORMS), st.integers(1, 13), st.integers(1, 33))
def test_layout_change(read: Form, written: Form, height: int, width: int) -> None:
    check(workload([(2, 8, height, width)], step("identity", 0)), (read, written))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([PLAIN, blocked(4)]),
    st.data(),
)
def test_concat_of_any_layouts(
    parts: list[int], axis: int, written: Form, data: st.DataObject
) -> None:
    shapes = [tuple(4 * p if a == 1 else p if a == axis else (1, 4, 5, 3)[a] for a in range(4))
              if axis != 1 else (1, 4 * p, 5, 3) for p in parts]  # fmt: skip
    if axis != 1:
        shapes = [tuple(p if a == axis else (1, 4, 5, 3)[a] for a in range(4)) for p in parts]
    forms = tuple(data.draw(st.sampled_from([PLAIN, blocked(2), blocked(4)])) for _ in parts)
    task = workload(shapes, step("concat", *range(len(parts)), axis=axis))
    check(task, (*forms, written))


def test_concat_that_splits_a_channel_block_is_still_right() -> None:
    task = workload([(1, 3, 4, 4), (1, 5, 4, 4)], step("concat", 0, 1, axis=1))
    check(task, (PLAIN, PLAIN, blocked(8)))


def test_concat_of_one_tensor_with_itself() -> None:
    check(workload([(2, 3)], step("concat", 0, 0, axis=0)), (PLAIN, PLAIN))


def test_concat_copies_without_branches() -> None:
    task = workload([(1, 16, 14, 14), (1, 32, 14, 14)], step("concat", 0, 1, axis=1))
    text = module_text(task, (blocked(16),) * 3)
    assert "if_then_else" not in text and "T.vectorized" in text


@pytest.mark.parametrize("form", FORMS)
def test_chain_with_broadcast_constants(form: Form) -> None:
    task = workload(
        [(2, 8, 7, 7), (8, 1, 1), (2, 8, 7, 7), ()],
        step("multiply", 0, 1),
        step("add", 4, 2),
        step("relu", 5),
        step("multiply", 6, 3),
    )
    check(task, (form, PLAIN, form, PLAIN, form))
    check(task, (PLAIN, PLAIN, form, PLAIN, form))


def test_large_elementwise_chain_is_one_parallel_vector_loop() -> None:
    task = workload([(1, 64, 28, 28), (1, 64, 28, 28)], step("add", 0, 1), step("relu", 2))
    text = module_text(task, (PLAIN,) * 3)
    assert text.count("T.parallel") == 1 and text.count("T.vectorized") == 1


def test_codes_are_made_in_vectors() -> None:
    """TVM takes vectors apart over its own function for rounding, byte by byte."""
    on = placement_of("llvm -mcpu=icelake-server", None, 1)
    task = workload(
        [(1, 16, 8, 64), ()], step("divide", 0, 1), step("round", 2),
        step("clip", 3, minimum=0.0, maximum=255.0), step("cast", 4, dtype="uint8"),
    )  # fmt: skip
    settings, forms = (("vector", 16),), (PLAIN,) * 3
    candidate = Candidate(implementation="injective", settings=settings, forms=forms)
    text = rendered(task, candidate, on.target, on.resources, "asm")
    assert "vcvtps2dq" in text
    assert "vrndscaleps" not in text, "the conversion rounds"
    assert "vpextrb" not in text


@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -7, 127)])
def test_codes_are_the_nearest_within_limits(dtype: str, low: int, high: int) -> None:
    """Ties go to even codes, and what no integer holds to the limits."""
    task = workload(
        [(1 << 12,)], step("round", 0), step("clip", 1, minimum=float(low), maximum=float(high)),
        step("cast", 2, dtype=dtype),
    )  # fmt: skip
    halves = np.arange(-600, 600) / 2
    beyond = [1e10, -1e10, 3e38, -3e38, np.inf, -np.inf, 2.0**31, -(2.0**31), 0.49999997, -0.0]
    drawn = np.random.default_rng(0).uniform(-300, 300, task.arguments[0].type.elements)
    x = drawn.astype(np.float32)
    x[: len(halves)] = halves
    x[-len(beyond) :] = beyond
    candidate = Candidate(
        implementation="injective", settings=(("vector", 16),), forms=(PLAIN, PLAIN)
    )
    found = build_kernel(task, candidate, HERE.target, HERE.resources).run([x])
    np.testing.assert_array_equal(found, np.clip(np.rint(x), low, high).astype(dtype))
