"""Weights in memory: the same values, aligned, in one piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

from tilewright.compiler.execute import load_weights
from tilewright.core.element_types import element_type

DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def address(tensor: tvm.runtime.Tensor) -> int:
    """Where a tensor lies, whatever its type."""
    flat = tensor._create_view((tensor.numpy().nbytes,), dtype="uint8")
    return np.from_dlpack(flat).ctypes.data


@pytest.mark.parametrize("rows", [1, 700_000])
def test_loading(tmp_path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for dtype in DTYPES:
        arrays[dtype] = rng.integers(0, 2, (rows, 3)).astype(element_type(dtype).numpy)
    arrays |= {"scalar": np.float32(7.5).reshape(()), "empty": np.empty((0, 4), np.float32)}
    path = tmp_path / "weights.params"
    stored = {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
    tvm.runtime.save_param_dict_to_file(stored, str(path))
    found = load_weights(path)
    assert list(found) == list(stored)
    places = []
    for name, array in arrays.items():
        assert found[name].numpy().dtype == array.dtype
        np.testing.assert_array_equal(found[name].numpy(), array)
        places.append(address(found[name]) if array.size else places[-1])
    assert places == sorted(places) and not any(place % 64 for place in places)
    size = sum(array.nbytes for array in arrays.values())
    assert places[-1] - places[0] < size + 64 * len(arrays)


@pytest.mark.parametrize("keep", [0, 20, 60, -1])
def test_a_file_cut_short(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "weights.params"
    stored = {name: tvm.runtime.tensor(np.ones(9, np.float32)) for name in ("one", "two")}
    tvm.runtime.save_param_dict_to_file(stored, str(path))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="weight"):
        load_weights(path)


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.params"
    path.write_bytes(bytes(1000))
    with pytest.raises(ValueError, match="no list of tensors"):
        load_weights(path)
