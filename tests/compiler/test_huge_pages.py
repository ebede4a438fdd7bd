"""Weights moved into one block of memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tilewright.compiler.huge_pages import in_huge_pages  # noqa: E402


def test_every_tensor_keeps_its_values_type_and_shape_and_is_aligned() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "large": rng.standard_normal((1024, 1100), dtype=np.float32),
        "odd": rng.integers(-128, 128, (7, 3)).astype(np.int8),
        "index": np.arange(5, dtype=np.int64),
        "one": np.float32(3.5).reshape(()),
        "last": rng.integers(0, 256, 65).astype(np.uint8),
    }
    moved = in_huge_pages({name: tvm.runtime.tensor(array) for name, array in arrays.items()})
    gc.collect()
    assert list(moved) == list(arrays)
    places = []
    for name, array in arrays.items():
        view = moved[name].numpy()
        np.testing.assert_array_equal(view, array, strict=True)
        start = np.from_dlpack(moved[name]).ctypes.data
        assert start % 64 == 0
        places.append((start, start + array.nbytes))
    places.sort()
    assert all(end <= start for (_, end), (start, _) in zip(places, places[1:], strict=False))


def test_nothing_to_move() -> None:
    assert in_huge_pages({}) == {}
