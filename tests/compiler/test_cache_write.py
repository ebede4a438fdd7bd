"""New rows in a cache against numpy, and in the cache's own memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import PLACEMENT, run_kernel, step, workload
from tilewright.compiler.build import compiled, kernel_module
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.testing.implementations import (
    ImplementationConformance,
    candidate_of,
    plain,
    single,
)

SPEC = implementation("cache_write")


def task(
    shape: tuple[int, ...], axis: int, added: int, dtype: str = "float32", place: str = "int64"
) -> Workload:
    rows = (*shape[:axis], added, *shape[axis + 1 :])
    kinds = [TensorType(shape, dtype), TensorType(rows, dtype), TensorType((1,), place)]
    return workload(kinds, step("cache_write", 0, 1, 2, axis=axis))


class TestCacheWrite(ImplementationConformance):
    spec = SPEC
    workloads = (
        single("cache_write", (1, 2, 40, 8), (1, 2, 1, 8), TensorType((1,), "int64"), axis=2),
        single("cache_write", (3, 7), (3, 2), TensorType((), "int32"), axis=1),
    )


BEYOND = (2**32 + 1, 1 - 2**32, 2**63 - 1, -(2**63))
"""Places whose lower halves may be inside."""


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    axis=st.integers(0, 3),
    added=st.integers(1, 4),
    place=st.integers(-6, 12) | st.sampled_from(BEYOND),
    dtype=st.sampled_from(["float32", "float16", "int64", "bool"]),
)
def test_rows_that_are_outside_are_left_out(
    shape: tuple[int, ...], axis: int, added: int, place: int, dtype: str
) -> None:
    axis %= len(shape)
    one = task(shape, axis, min(added, shape[axis]), dtype)
    rng = np.random.default_rng(abs(place))
    cache, rows = (rng.integers(0, 99, a.type.shape).astype(dtype) for a in one.arguments[:2])
    arrays = [cache, rows, np.array([place])]
    expected = run_workload(one, arrays)
    for name in ("cache_write", "injective"):
        np.testing.assert_array_equal(run_kernel(one, name, arrays), expected)
    outside = place >= shape[axis] or place + rows.shape[axis] <= 0
    assert not outside or (expected == cache).all()


@pytest.mark.parametrize("place", [0, 5, 39, 40])
def test_in_the_memory_of_the_cache_nothing_else_is_touched(place: int) -> None:
    import tvm

    one = task((1, 2, 40, 8), 2, 1)
    candidate = candidate_of(SPEC, {}, plain(one))
    module = kernel_module(one, candidate, PLACEMENT.target, PLACEMENT.resources)
    kernel = compiled(module, PLACEMENT.target, PLACEMENT.resources).jit()["main"]
    rng = np.random.default_rng(place)
    cache, rows = (rng.standard_normal(a.type.shape, np.float32) for a in one.arguments[:2])
    held = tvm.runtime.tensor(cache)
    kernel(held, tvm.runtime.tensor(rows), tvm.runtime.tensor(np.array([place])), held)
    expected = run_workload(one, [cache, rows, np.array([place])])
    np.testing.assert_array_equal(held.numpy(), expected)


@pytest.mark.parametrize("place", BEYOND)
def test_places_beyond_32_bits_write_nothing(place: int) -> None:
    one = task((2, 5, 3), 1, 2)
    cache, rows = (np.full(a.type.shape, n, np.float32) for n, a in enumerate(one.arguments[:2]))
    arrays = [cache, rows, np.array([place])]
    np.testing.assert_array_equal(run_workload(one, arrays), cache)
    for name in ("cache_write", "injective"):
        np.testing.assert_array_equal(run_kernel(one, name, arrays), cache)
