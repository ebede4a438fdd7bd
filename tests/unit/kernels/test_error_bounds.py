"""Error bounds follow from the precision and from how long sums are, and stay well below 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.element_types import element_type, element_types
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.register_tile import summation_error
from tilewright.kernels.registry import applicable
from tilewright.testing.implementations import PLACEMENTS

FLOATS = [kind.name for kind in element_types() if kind.is_float]
CONV = attributes(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)
POOL = attributes(
    kernel=(2, 2), strides=(2, 2), padding=(0, 0, 0, 0), dilation=(1, 1), count_include_pad=False
)
Shapes = list[tuple[int, ...]]
ANCHORS: dict[str, Callable[[int], tuple[Shapes, Step]]] = {
    "conv2d": lambda n: (
        [(1, n, 8, 8), (16, n, 3, 3)],
        Step(operator="conv2d", inputs=(0, 1), attributes=CONV),
    ),
    "depthwise": lambda n: (
        [(1, n, 8, 8), (n, 1, 3, 3)],
        Step(
            operator="conv2d",
            inputs=(0, 1),
            attributes=attributes(**{**dict(CONV), "groups": n}),
        ),
    ),
    "dense": lambda n: ([(4, n), (n, 16)], Step(operator="dense", inputs=(0, 1))),
    "batch_matmul": lambda n: (
        [(2, 4, n), (2, n, 8)],
        Step(
            operator="batch_matmul", inputs=(0, 1), attributes=attributes(transpose_b=False)
        ),
    ),
    "softmax": lambda n: (
        [(4, n)],
        Step(operator="softmax", inputs=(0,), attributes=attributes(axis=1)),
    ),
    "reduce_mean": lambda n: (
        [(4, n)],
        Step(
            operator="reduce_mean", inputs=(0,), attributes=attributes(axes=(1,), keepdims=False)
        ),
    ),
    "avg_pool2d": lambda n: (
        [(1, n, 8, 8)],
        Step(operator="avg_pool2d", inputs=(0,), attributes=POOL),
    ),
    "elementwise": lambda n: ([(4, n)], Step(operator="tanh", inputs=(0,))),
}  # fmt: skip


def workload(anchor: str, length: int, dtype: str) -> Workload:
    shapes, step = ANCHORS[anchor](length)
    arguments = [
        Argument(type=TensorType(shape, dtype), role="constant" if index else "data")
        for index, shape in enumerate(shapes)
    ]
    return Workload(arguments=tuple(arguments), steps=(step,))


def bounds(anchor: str, length: int, dtype: str) -> dict[str, float]:
    """By implementation, of all that apply on any of the made-up devices."""
    made = workload(anchor, length, dtype)
    specs = {
        spec.name: spec for on in PLACEMENTS for spec in applicable(made, on.target, on.resources)
    }
    return {name: spec.error_bound(made) for name, spec in specs.items()}


@pytest.mark.parametrize("anchor", ANCHORS)
@given(length=st.integers(1, 1 << 16))
def test_bounds_are_well_below_one_for_every_implementation_and_type(
    anchor: str, length: int
) -> None:
    for dtype in FLOATS:
        found = bounds(anchor, length, dtype)
        assert found
        assert all(0 < bound < 0.05 for bound in found.values()), (dtype, found)


@pytest.mark.parametrize("anchor", ANCHORS)
@given(length=st.integers(1, 1 << 16), more=st.integers(1, 16))
def test_bounds_grow_with_sums_and_shrink_with_precision(
    anchor: str, length: int, more: int
) -> None:
    finest_first = sorted(FLOATS, key=lambda name: element_type(name).unit_roundoff or 0.0)
    every = [bounds(anchor, length, dtype) for dtype in finest_first]
    for finer, coarser in zip(every, every[1:], strict=False):
        for name in finer.keys() & coarser.keys():
            assert finer[name] <= coarser[name], name
    for dtype, found in zip(finest_first, every, strict=True):
        longer = bounds(anchor, length * more, dtype)
        assert all(found[name] <= longer[name] for name in found.keys() & longer.keys())


@pytest.mark.parametrize(
    ("anchor", "length", "implementation", "bound"),
    [
        ("dense", 1, "dense_packed", 2e-6),
        ("dense", 64, "dense_packed", 2e-6),
        ("dense", 100, "dense_packed", 2.4e-6),
        ("dense", 10_000, "dense_packed", 2.4e-5),
        ("batch_matmul", 10_000, "batch_matmul_tiled", 2.4e-5),
        ("conv2d", 100, "conv2d_direct", 2.4e-7 * 30),
    ],
)
def test_sums_in_single_precision_err_by_the_root_of_their_length(
    anchor: str, length: int, implementation: str, bound: float
) -> None:
    """A convolution of 100 channels with 3×3 taps adds up 900 products, whose root is 30."""
    assert bounds(anchor, length, "float32")[implementation] == pytest.approx(bound)


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 3000), seed=st.integers(0, 1000))
def test_a_sum_that_is_right_keeps_within_its_bound_and_one_that_lacks_a_product_does_not(
    length: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    x, w = random.normal(size=(2, length)).astype(np.float32)
    products = x * w
    whole = float(np.dot(x.astype(np.float64), w.astype(np.float64)))
    scale = float(np.abs(products.astype(np.float64)).sum())
    one_after_the_other = float(np.cumsum(products, dtype=np.float32)[-1])
    bound = summation_error(length)
    assert abs(one_after_the_other - whole) <= bound * scale
    largest = float(np.abs(products).max())
    assert largest > bound * scale
