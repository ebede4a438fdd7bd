"""What ONNX Runtime does not tell of operators: integers, half precision, large numbers, and
resizes that keep an extent; worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.core.errors import ModelError
from tilewright.graph.network import TensorType
from tilewright.graph.operators import OPERATORS, windows
from tilewright.graph.operators.movement import nearest_index, source_position

CONVOLUTION: dict[str, Any] = {
    "strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1,
}  # fmt: skip


def result(name: str, *arrays: Any, **named: Any) -> Any:
    """The operator's result; its type is the one that is inferred."""
    operator, given = OPERATORS[name], tuple(np.asarray(array) for array in arrays)
    kinds = tuple(TensorType(array.shape, str(array.dtype)) for array in given)
    inferred = operator.infer(kinds, named)
    found = operator.reference(given, named)
    assert (found.shape, str(found.dtype)) == (inferred.shape, inferred.dtype)
    return found


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    x = np.array([[1000.0, 1001.0], [-1000.0, -1001.0]], np.float32)
    found = result("softmax", x, axis=1)
    np.testing.assert_allclose(found, [[0.26894142, 0.7310586], [0.7310586, 0.26894142]], rtol=1e-6)
    found = result("log_softmax", x, axis=1)
    np.testing.assert_allclose(
        found, [[-1.3132617, -0.3132617], [-0.3132617, -1.3132617]], rtol=1e-6
    )


def test_the_mean_of_integers_is_rounded_down() -> None:
    x = np.array([[1, 2, -3], [4, 6, -4]], np.int64)
    assert result("reduce_mean", x, axes=(0,), keepdims=False).tolist() == [2, 4, -4]
    assert result("reduce_mean", x, axes=(0, 1), keepdims=True).tolist() == [[1]]
    assert result("reduce_mean", np.float32([1, 2]), axes=(0,), keepdims=False) == 1.5


def test_half_precision_is_summed_up_in_single() -> None:
    """300 × 300 is more than half precision holds, 300 × 300 × 0.01 is not."""
    x = np.array([300, 300, 0.01], np.float16)
    assert result("reduce_prod", x, axes=(0,), keepdims=False) == pytest.approx(900, rel=1e-3)


def test_integers_keep_their_type_and_wrap() -> None:
    x = np.array([30000, 30000], np.int16)
    assert result("reduce_sum", x, axes=(0,), keepdims=False) == 60000 - 2**16
    x = np.array([4097, 4097], np.int16)
    assert result("reduce_prod", x, axes=(0,), keepdims=False) == 4097**2 % 2**16


@pytest.mark.parametrize(
    ("shapes", "changed", "says"),
    [
        ([(1, 4, 8), (4, 2, 3, 3)], {}, "data float32"),
        ([(1, 4, 8, 8), (4, 2, 3)], {}, "data float32"),
        ([(1, 4, 8, 8), (6, 2, 3, 3)], {}, "4 input channels do not fit weight"),
        ([(1, 4, 8, 8), (4, 2, 3, 3)], {"groups": 0}, "with 0 groups"),
        ([(1, 4, 8, 8), (4, 2, 3, 3)], {"groups": 3}, "with 3 groups"),
        ([(1, 4, 2, 2), (4, 2, 1, 3)], {"padding": (1, 1, 1, 1)}, "leaves nothing of"),
    ],
)
def test_transposed_convolutions_that_do_not_fit(
    shapes: list[tuple[int, ...]], changed: dict[str, Any], says: str
) -> None:
    named = {**CONVOLUTION, "output_padding": (0, 0), "groups": 2} | changed
    with pytest.raises(ModelError, match=says):
        OPERATORS["conv2d_transpose"].infer(tuple(TensorType(s) for s in shapes), named)


def test_a_transposed_convolution_may_end_at_one_row() -> None:
    """Two rows less one of padding on each side, and one more of output padding."""
    x, w = np.ones((1, 2, 2, 3), np.float32), np.ones((2, 1, 1, 2), np.float32)
    named = {**CONVOLUTION, "padding": (1, 0, 1, 1), "output_padding": (1, 0), "groups": 2}
    found = result("conv2d_transpose", x, w, **named)
    np.testing.assert_array_equal(found, np.broadcast_to(np.float32([1, 2, 2]), (1, 2, 1, 3)))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_convolutions_of_bytes_are_exact_sums_of_32_bits(dtype: str) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(2)
    x = rng.integers(limits.min, limits.max, (2, 4, 5, 6), dtype, endpoint=True)
    w = rng.integers(-128, 127, (6, 2, 3, 3), "int8", endpoint=True)
    named = {**CONVOLUTION, "groups": 2}
    found = result("conv2d", x, w, **named)
    assert found.dtype == np.int32
    wanted = result("conv2d", x.astype(np.float64), w.astype(np.float64), **named)
    np.testing.assert_array_equal(found, wanted)
    x[:], w[:] = limits.max, -128
    largest = result("conv2d", x, w, **named)
    assert largest.min() == -128 * int(limits.max) * 2 * 9


def test_weights_of_bytes_are_signed() -> None:
    kinds = (TensorType((1, 4, 5, 5), "int8"), TensorType((4, 4, 3, 3), "uint8"))
    with pytest.raises(ModelError, match="int8, uint8"):
        OPERATORS["conv2d"].infer(kinds, CONVOLUTION)


@pytest.mark.parametrize("most_bytes", [1, 7_000, 20_000])
def test_a_convolution_in_parts_is_the_same(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are taken a few at a time, so that windows laid out side by side stay small."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 4, 9, 7)), rng.standard_normal((6, 2, 3, 2))
    named = {**CONVOLUTION, "padding": (1, 0, 2, 1), "groups": 2}
    whole = result("conv2d", x, w, **named)
    shapes: list[tuple[int, ...]] = []
    matmul = np.matmul

    def watched(left: Any, right: Any) -> Any:
        shapes.append(right.shape)
        return matmul(left, right)

    monkeypatch.setattr(windows, "_COLUMN_BYTES", most_bytes)
    monkeypatch.setattr(np, "matmul", watched)
    np.testing.assert_allclose(result("conv2d", x, w, **named), whole, rtol=1e-12)
    a_row = 8 * 2 * 4 * 3 * 2 * 7
    rows = max(1, most_bytes // a_row)
    assert shapes[0] == (2, 2, 2 * 3 * 2, rows * 7)
    assert len(shapes) == -(-10 // rows)


def test_empty_tensors_and_scalars() -> None:
    empty = np.empty((2, 0, 3), np.float32)
    assert result("reshape", empty, shape=(0, 5)).shape == (0, 5)
    assert result("pad", np.float32(4), before=(), after=(), value=1.0, mode="constant") == 4
    assert result("slice", np.arange(5.0), starts=(3,), stops=(3,), steps=(1,)).shape == (0,)
    assert result("slice", np.arange(5.0), starts=(4,), stops=(-1,), steps=(-2,)).tolist() == [
        4,
        2,
        0,
    ]
    assert result("concat", np.arange(3), axis=0).tolist() == [0, 1, 2]
    padded = result("pad", np.arange(3.0), before=(0,), after=(2,), value=0.0, mode="reflect")
    assert padded.tolist() == [0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("scale", "coordinate", "rounding", "read"),
    [
        (1.1, "asymmetric", "floor", [0, 0, 1, 2, 3]),
        (1.1, "asymmetric", "ceil", [0, 1, 2, 3, 4]),
        (1.0, "tf_half_pixel_for_nn", "ceil", [0, 1, 2, 3, 4]),
    ],
)
def test_a_resize_may_keep_an_extent(
    scale: float, coordinate: str, rounding: str, read: list[int]
) -> None:
    """Five of 5.5 positions are others than those that are there; with a scale of 1 they are the
    same, whatever the coordinates."""
    x = np.arange(10.0).reshape(2, 5)
    named = {"coordinate": coordinate, "rounding": rounding, "scales": (1.0, scale)}
    found = result("resize_nearest", x, shape=(2, 5), **named)
    np.testing.assert_array_equal(found, x[:, read])


@pytest.mark.parametrize(
    ("coordinate", "extents", "scale", "places"),
    [
        ("asymmetric", (4, 8), 2.0, [0, 0.5, 1]),
        ("half_pixel", (4, 8), 2.0, [-0.25, 0.25, 0.75]),
        ("pytorch_half_pixel", (4, 8), 2.0, [-0.25, 0.25, 0.75]),
        ("pytorch_half_pixel", (4, 1), 0.25, [0]),
        ("half_pixel", (4, 1), 0.25, [1.5]),
        ("align_corners", (4, 7), 1.75, [0, 0.5, 1]),
        ("align_corners", (4, 1), 0.25, [0]),
        ("tf_half_pixel_for_nn", (4, 8), 2.0, [0.25, 0.75, 1.25]),
        # eight positions where 8.5 would be: as far from the beginning as from the end
        ("half_pixel_symmetric", (5, 8), 1.7, [0.5 / 1.7 - 0.5 + 2.5 * (1 - 8 / 8.5)]),
    ],
)
def test_where_positions_of_a_resize_lie(
    coordinate: str, extents: tuple[int, int], scale: float, places: list[float]
) -> None:
    found = [source_position(n, extents, scale, coordinate) for n in range(len(places))]
    assert found == pytest.approx(places)
    if coordinate == "half_pixel_symmetric":
        last = source_position(extents[1] - 1, extents, scale, coordinate)
        assert found[0] == pytest.approx(extents[0] - 1 - last)


def test_places_beyond_the_ends_read_the_ends() -> None:
    for rounding, read in (("floor", [0, 0, 0, 0, 1, 2]), ("ceil", [0, 0, 1, 1, 1, 2])):
        named = {"coordinate": "half_pixel", "rounding": rounding}
        assert [nearest_index(n, 3, 9, 3.0, named) for n in (0, 1, 2, 3, 4, 8)] == read
    with pytest.raises(ModelError, match="unknown rounding up"):
        nearest_index(0, 3, 9, 3.0, {"coordinate": "half_pixel", "rounding": "up"})
    with pytest.raises(ModelError, match="unknown coordinate transformation middle"):
        nearest_index(0, 3, 9, 3.0, {"coordinate": "middle", "rounding": "floor"})


def test_a_transposed_convolution_of_codes_adds_up_in_32_bits() -> None:
    """Each code is spread over a window, by the filters of its group."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (1, 6, 5, 4)), rng.integers(-128, 128, (6, 3, 3, 4))
    named = {"strides": (2, 2), "padding": (1, 0, 0, 1), "dilation": (1, 1),
             "output_padding": (0, 0), "groups": 3}  # fmt: skip
    wanted = np.zeros((1, 9, 11, 10), np.int64)
    for c, i, j in np.ndindex(6, 5, 4):
        first = 3 * (c // 2)
        wanted[0, first : first + 3, 2 * i : 2 * i + 3, 2 * j : 2 * j + 4] += x[0, c, i, j] * w[c]
    codes = (x.astype(np.uint8), w.astype(np.int8))
    found = OPERATORS["conv2d_transpose"].compute(*codes, **named)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted[:, :, 1:, :-1])
