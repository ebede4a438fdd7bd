"""Every movement operator of the vocabulary against its numpy meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import (
    PLACEMENT,
    all_settings,
    random_arrays,
    run_kernel,
    step,
    workload,
)
from tilewright.compiler.build import kernel_module
from tilewright.compiler.lower.movement import RULES
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload


def check(
    task: Workload, arrays: list | None = None, *, tolerance: float = 0, forms: tuple = ()
) -> None:
    arrays = random_arrays(task) if arrays is None else arrays
    found = run_kernel(task, "injective", arrays, forms)
    np.testing.assert_allclose(found, run_workload(task, arrays), rtol=0, atol=tolerance)


def test_every_movement_has_a_rule() -> None:
    assert {name for name, op in OPERATORS.items() if op.movement} == set(RULES)


def test_reshape_to_and_from_scalars_and_odd_shapes() -> None:
    check(workload([(6, 10)], step("reshape", 0, shape=(4, 3, 5))))
    check(workload([(1, 1)], step("reshape", 0, shape=())))
    check(workload([()], step("reshape", 0, shape=(1, 1, 1))))


def test_chain_of_reshape_and_transpose_is_channel_shuffle() -> None:
    check(
        workload(
            [(2, 12, 5, 5)],
            step("reshape", 0, shape=(2, 3, 4, 5, 5)),
            step("transpose", 1, permutation=(0, 2, 1, 3, 4)),
            step("reshape", 2, shape=(2, 12, 5, 5)),
        )
    )


@settings(max_examples=8, deadline=None)
@given(st.permutations(range(4)), st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_transpose(order: list[int], shape: list[int]) -> None:
    check(workload([tuple(shape)], step("transpose", 0, permutation=tuple(order))))


def test_slice_with_steps_forward_and_backward() -> None:
    check(
        workload(
            [(9, 10, 7)],
            step("slice", 0, starts=(1, 9, 6), stops=(8, -1, 1), steps=(2, -3, -1)),
        )
    )


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 2),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_concat(axis: int, parts: list[int], beside: tuple[int, int]) -> None:
    shapes = [(*beside[:axis], part, *beside[axis:]) for part in parts]
    check(workload(shapes, step("concat", *range(len(parts)), axis=axis)))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    named = dict(before=(0, 2, 1), after=(1, 0, 3), value=-1.5, mode=mode)
    check(workload([(2, 5, 6)], step("pad", 0, **named)))
    check(workload([TensorType((3, 5), "int64")],
                   step("pad", 0, before=(1, 1), after=(0, 2), value=3.0, mode=mode)))  # fmt: skip


def test_expand() -> None:
    check(workload([(3, 1)], step("expand", 0, shape=(2, 3, 4))))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather_takes_negative_indices(axis: int, dtype: str) -> None:
    task = workload([(5, 6, 7), TensorType((2, 3), dtype)], step("gather", 0, 1, axis=axis))
    data, _ = random_arrays(task)
    check(task, [data, np.array([[0, -1, 2], [4, -5, 3]], dtype)])


def test_gather_never_reads_outside_its_buffer() -> None:
    task = workload([(4, 8), TensorType((2,), "int64")], step("gather", 0, 1, axis=0))
    data, _ = random_arrays(task)
    found = run_kernel(task, "injective", [data, np.array([10**6, -(10**6)])])
    np.testing.assert_array_equal(found, data[[3, 0]])


COORDINATES = [
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "tf_half_pixel_for_nn",
]
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@settings(max_examples=24, deadline=None)
@given(
    st.sampled_from(COORDINATES),
    st.sampled_from(ROUNDINGS),
    st.integers(1, 9),
    st.integers(1, 20),
)
def test_resize_nearest(coordinate: str, rounding: str, before: int, after: int) -> None:
    named = dict(shape=(1, 2, after, 6), coordinate=coordinate, rounding=rounding,
                 scales=(1.0, 1.0, after / before, 2.0))  # fmt: skip
    check(workload([(1, 2, before, 3)], step("resize_nearest", 0, **named)))


@pytest.mark.parametrize(
    ("scale", "coordinate", "rounding", "read"),
    [
        (1.1, "asymmetric", "floor", [0, 0, 1, 2, 3]),
        (1.1, "asymmetric", "ceil", [0, 1, 2, 3, 4]),
        (1.0, "tf_half_pixel_for_nn", "ceil", [0, 1, 2, 3, 4]),
    ],
)
def test_an_axis_may_keep_its_extent(
    scale: float, coordinate: str, rounding: str, read: list[int]
) -> None:
    """Five of 5.5 positions are others than those that are there, by the scale; an axis whose scale
    is 1 is left alone, whatever its coordinates and rounding would say."""
    named = dict(shape=(2, 5), coordinate=coordinate, rounding=rounding, scales=(1.0, scale))
    task = workload([(2, 5)], step("resize_nearest", 0, **named))
    (data,) = random_arrays(task)
    found = run_kernel(task, "injective", [data])
    np.testing.assert_array_equal(found, data[:, read])
    np.testing.assert_array_equal(run_workload(task, [data]), data[:, read])


def resized(before: int, after: int, scale: float, coordinate: str, rounding: str) -> str:
    """Check a resize of one axis; the text of its kernel."""
    named = dict(shape=(after,), coordinate=coordinate, rounding=rounding, scales=(scale,))
    task = workload([(before,)], step("resize_nearest", 0, **named))
    check(task)
    settings = all_settings(task, "injective", (PLAIN, PLAIN))[0]
    candidate = Candidate(
        implementation="injective", settings=tuple(settings.items()), forms=(PLAIN, PLAIN)
    )
    return kernel_module(task, candidate, PLACEMENT.target, PLACEMENT.resources).script()


@pytest.mark.parametrize(
    ("before", "after", "coordinate", "rounding"),
    [
        (3, 6, "asymmetric", "floor"),
        (3, 6, "half_pixel", "round_prefer_floor"),
        (3, 12, "half_pixel", "round_prefer_ceil"),
        (1, 7, "align_corners", "floor"),
        (5, 8, "asymmetric", "floor"),
        (12, 5, "asymmetric", "floor"),
    ],
)
def test_positions_are_whole_numbers_where_that_is_exact(
    before: int, after: int, coordinate: str, rounding: str
) -> None:
    assert "float64" not in resized(before, after, after / before, coordinate, rounding)


@pytest.mark.parametrize(
    ("before", "after", "scale", "coordinate", "rounding"),
    [
        (5, 8, 1.6, "half_pixel", "round_prefer_floor"),
        (5, 8, 1.7, "half_pixel_symmetric", "round_prefer_ceil"),
        (9, 4, 0.5, "half_pixel_symmetric", "ceil"),
        (7, 5, 5 / 7, "align_corners", "ceil"),
        (4, 7, 1.75, "align_corners", "round_prefer_ceil"),
        (7, 1, 1 / 7, "align_corners", "ceil"),
        (6, 4, 0.7, "pytorch_half_pixel", "ceil"),
        (6, 7, 1.2, "tf_half_pixel_for_nn", "ceil"),
        (5, 8, 1.6, "asymmetric", "round_prefer_floor"),
    ],
)
def test_other_positions_are_computed_as_onnx_has_them(
    before: int, after: int, scale: float, coordinate: str, rounding: str
) -> None:
    text = resized(before, after, scale, coordinate, rounding)
    assert after == 1 or "float64" in text


def table(before: int, after: int, taps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights of an interpolation."""
    rng = np.random.default_rng(seed)
    shape = (taps, after)
    return rng.integers(0, before, shape).astype(np.int32), rng.random(shape).astype(np.float32)


@pytest.mark.parametrize("form", [PLAIN, blocked(8)])
def test_interpolation_along_two_axes_and_a_relu_is_one_kernel(form: Form) -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 5, 6)).astype(np.float32)
    tables = [*table(6, 11, 2, 1), *table(5, 3, 4, 2)]
    kinds = [TensorType(array.shape, str(array.dtype)) for array in (x, *tables)]
    steps = (
        step("interpolate", 0, 1, 2, axis=3),
        step("interpolate", 5, 3, 4, axis=2),
        step("relu", 6),
    )
    forms = (form, *(PLAIN,) * 4, form)
    check(workload(kinds, *steps), [x, *tables], tolerance=1e-5, forms=forms)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.sampled_from([PLAIN, blocked(4), blocked(16)]),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
def test_from_channels_last_to_larger_images_in_blocks(
    written: Form, small: tuple[int, int], large: tuple[int, int]
) -> None:
    x = np.random.default_rng(0).standard_normal((1, small[0] * small[1], 32)).astype(np.float32)
    tables = [*table(small[0], large[0], 2, 1), *table(small[1], large[1], 2, 2)]
    kinds = [TensorType(array.shape, str(array.dtype)) for array in (x, *tables)]
    steps = (
        step("transpose", 0, permutation=(0, 2, 1)),
        step("reshape", 5, shape=(1, 32, *small)),
        step("interpolate", 6, 1, 2, axis=2),
        step("interpolate", 7, 3, 4, axis=3),
    )
    task = workload(kinds, *steps)
    check(task, [x, *tables], tolerance=1e-5, forms=(*(PLAIN,) * 5, written))


def test_interpolation_never_reads_outside() -> None:
    x = np.ones((3, 4), np.float32)
    indices = np.array([[-5, 0, 99]], np.int32)
    kinds = [TensorType((3, 4)), TensorType((1, 3), "int32"), TensorType((1, 3))]
    task = workload(kinds, step("interpolate", 0, 1, 2, axis=1))
    found = run_kernel(task, "injective", [x, indices, np.ones((1, 3), np.float32)])
    np.testing.assert_array_equal(found, np.ones((3, 3)))
