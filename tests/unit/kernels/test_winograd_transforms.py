"""The transforms are exact, and their points keep rounding small."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.errors import InternalError
from tilewright.kernels.winograd_transforms import (
    Transform,
    double,
    from_points,
    transform,
    whole,
)

SIZES = [(1, 1), (2, 3), (4, 3), (6, 3), (2, 5), (4, 5), (2, 7), (4, 7)]
rationals = st.fractions(-100, 100, max_denominator=64)


def by_multiplying(chosen: Transform, data: list[Fraction], weights: list[Fraction]):
    """A^T ((G g) * (B^T d))"""
    products = [
        sum(b * d for b, d in zip(row, data, strict=True))
        * sum(g * w for g, w in zip(weight, weights, strict=True))
        for row, weight in zip(chosen.input, chosen.weight, strict=True)
    ]
    return [sum(a * p for a, p in zip(row, products, strict=True)) for row in chosen.output]


def correlation(data: list[Fraction], weights: list[Fraction]):
    outputs = len(data) - len(weights) + 1
    return [sum(w * data[i + k] for k, w in enumerate(weights)) for i in range(outputs)]


@settings(deadline=None, derandomize=True)
@given(size=st.sampled_from(SIZES), values=st.data())
def test_they_compute_a_correlation(size: tuple[int, int], values: st.DataObject) -> None:
    chosen = transform(*size)
    data = values.draw(st.lists(rationals, min_size=chosen.positions, max_size=chosen.positions))
    weights = values.draw(st.lists(rationals, min_size=size[1], max_size=size[1]))
    assert by_multiplying(chosen, data, weights) == correlation(data, weights)


@settings(deadline=None, derandomize=True)
@given(
    points=st.lists(st.fractions(-4, 4, max_denominator=8), min_size=1, max_size=7, unique=True),
    taps=st.integers(1, 8),
    values=st.data(),
)
def test_any_points_do(points: list[Fraction], taps: int, values: st.DataObject) -> None:
    taps = min(taps, len(points) + 1)
    chosen = from_points(len(points) + 2 - taps, taps, points)
    count = chosen.positions
    assert count == len(points) + 1
    data = values.draw(st.lists(rationals, min_size=count, max_size=count))
    weights = values.draw(st.lists(rationals, min_size=taps, max_size=taps))
    assert by_multiplying(chosen, data, weights) == correlation(data, weights)


@settings(deadline=None, derandomize=True)
@given(
    points=st.lists(st.fractions(-4, 4, max_denominator=8), min_size=1, max_size=6, unique=True),
    taps=st.integers(1, 4),
    values=st.data(),
)
def test_in_whole_numbers_results_are_multiples(
    points: list[Fraction], taps: int, values: st.DataObject
) -> None:
    taps = min(taps, len(points) + 1)
    chosen, divisor = whole(from_points(len(points) + 2 - taps, taps, points))
    matrices = (chosen.input, chosen.weight, chosen.output)
    assert {entry.denominator for matrix in matrices for row in matrix for entry in row} == {1}
    numbers = st.integers(-255, 255).map(Fraction)
    data = values.draw(st.lists(numbers, min_size=chosen.positions, max_size=chosen.positions))
    weights = values.draw(st.lists(numbers, min_size=taps, max_size=taps))
    found = by_multiplying(chosen, data, weights)
    assert found == [divisor * value for value in correlation(data, weights)]


def test_the_smallest_is_the_known_one() -> None:
    chosen = transform(2, 3)
    assert chosen.input == ((-1, 0, 1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))
    half = Fraction(1, 2)
    assert chosen.weight == ((-1, 0, 0), (half, half, half), (half, -half, half), (0, 0, 1))
    assert chosen.output == ((1, 1, 1, 0), (0, 1, -1, 1))
    assert transform(1, 1).trivial and not chosen.trivial


@pytest.mark.parametrize("size", SIZES)
def test_what_is_done_when_run_is_exact_in_single_precision(size: tuple[int, int]) -> None:
    chosen = transform(*size)
    for matrix in (chosen.input, chosen.output):
        single = double(matrix).astype(np.float32)
        found = [[Fraction(float(entry)) for entry in row] for row in single]
        assert found == [list(row) for row in matrix]


@pytest.mark.parametrize("size", SIZES)
def test_balanced_products_are_enlarged_by_less_than_two(size: tuple[int, int]) -> None:
    usual = transform(*size, coarse=True)
    found = usual.balanced()
    for before, after in zip(
        zip(usual.input, usual.weight, zip(*usual.output, strict=True), strict=True),
        zip(found.input, found.weight, zip(*found.output, strict=True), strict=True),
        strict=True,
    ):
        data, weight, back = (sum(map(abs, row)) for row in after)
        assert 1 <= data * weight < 2
        assert data * back == sum(map(abs, before[0])) * sum(map(abs, before[2]))
    assert found.amplification() == pytest.approx(usual.amplification())


def root_mean_square_error(chosen: Transform) -> float:
    """Relative to sum |w||x|, in single precision, of sums over 24 channels."""
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.uniform(-1.5, 1.5, (24, 1))
    data = (scales * rng.standard_normal((24, chosen.positions))).astype(np.float32)
    weights = rng.standard_normal((200, 24, chosen.taps)).astype(np.float32)
    ahead = (weights.astype(np.float64) @ double(chosen.weight).T).astype(np.float32)
    products = np.zeros((200, chosen.positions), np.float32)
    for channel, row in enumerate(data @ double(chosen.input).astype(np.float32).T):
        products += ahead[:, channel] * row
    ours = products @ double(chosen.output).astype(np.float32).T
    windows = np.lib.stride_tricks.sliding_window_view(data.astype(np.float64), chosen.taps, axis=1)
    exact = np.einsum("ock,cik->oi", weights.astype(np.float64), windows)
    sums = np.einsum("ock,cik->oi", np.abs(weights).astype(np.float64), np.abs(windows))
    return float(np.sqrt(np.mean(((ours - exact) / sums) ** 2)))


@pytest.mark.parametrize(("size", "factor"), [((4, 3), 1.2), ((2, 5), 1.2), ((4, 7), 3.0)])
def test_points_are_better_than_whole_numbers(size: tuple[int, int], factor: float) -> None:
    chosen = transform(*size)
    whole = [Fraction(0)]
    while len(whole) < chosen.positions - 1:
        step = Fraction(len(whole) // 2 + 1)
        whole += [step, -step]
    usual = from_points(*size, whole)
    assert factor * root_mean_square_error(chosen) < root_mean_square_error(usual)


def test_what_cannot_be_made_is_refused() -> None:
    zero, one = Fraction(0), Fraction(1)
    with pytest.raises(InternalError):
        from_points(2, 3, (zero, one, one))
    with pytest.raises(InternalError):
        from_points(2, 3, (zero, one))
    for size in ((3, 3), (0, 4), (20, 3)):
        with pytest.raises(InternalError):
            transform(*size)
