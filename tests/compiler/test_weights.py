"""Weights in memory: the same values, aligned, in one piece."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm

from tilewright.compiler.execute import WeightsPool, load_weights
from tilewright.core.element_types import element_type
from tilewright.core.weights import (
    WEIGHTS,
    own_bytes,
    share,
    weights_of,
    write_reference,
)

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


def shared(folder: Path) -> list[dict[str, np.ndarray]]:
    """Two networks with three constants each in `folder`, two of which are equal, in one file."""
    rng = np.random.default_rng(0)
    equal = rng.standard_normal((64, 100)).astype(np.float32)
    networks = [
        {
            "first": equal,
            "second": np.arange(9),
            f"own{n}": rng.integers(0, 9, (3, 5)).astype("int8"),
        }
        for n in range(2)
    ]
    # equal bytes of another shape or type are another constant
    networks[1]["second"] = np.arange(9).reshape(3, 3)
    files = [folder / f"network{n}" / WEIGHTS for n in range(2)]
    for path, arrays in zip(files, networks, strict=True):
        path.parent.mkdir()
        stored = {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
        tvm.runtime.save_param_dict_to_file(stored, str(path))
    made, references = share(files, folder)
    size = sum(array.nbytes for array in networks[0].values()) + 72 + 15
    assert size < made.stat().st_size < size + 1000
    for path, reference in zip(files, references, strict=True):
        before = path.stat().st_size
        write_reference(path, reference)
        assert abs(own_bytes(path) - before) < 200 and weights_of(path.parent) == made
    return networks


def test_networks_share_a_file(tmp_path: Path) -> None:
    networks, pool = shared(tmp_path), WeightsPool()
    files = [tmp_path / f"network{n}" / WEIGHTS for n in range(2)]
    for load in (load_weights, pool.load):
        for path, arrays in zip(files, networks, strict=True):
            found = load(path)
            assert sorted(found) == sorted(arrays)
            for name, array in arrays.items():
                assert found[name].numpy().dtype == array.dtype
                np.testing.assert_array_equal(found[name].numpy(), array)
    first, second = map(pool.load, files)
    assert address(first["first"]) == address(second["first"])
    assert address(first["second"]) != address(second["second"])
    # references are shared again: what is made anew for one of several shapes
    made, again = share(files, tmp_path)
    assert [each.names for each in again] == [
        json.loads(path.read_text())["names"] for path in files
    ] and made == weights_of(files[0].parent)


@pytest.mark.parametrize("elsewhere", ["/etc/passwd", "x.params", "../../x.params"])
def test_references_that_lead_elsewhere(tmp_path: Path, elsewhere: str) -> None:
    shared(tmp_path)
    path = tmp_path / "network0" / WEIGHTS
    path.write_text(json.dumps({**json.loads(path.read_text()), "file": elsewhere}))
    with pytest.raises(ValueError, match="names a file elsewhere"):
        load_weights(path)


def test_damaged_references(tmp_path: Path) -> None:
    shared(tmp_path)
    path = tmp_path / "network0" / WEIGHTS
    text = path.read_text()
    path.write_text(text[:50])
    with pytest.raises(ValueError, match="is damaged"):
        load_weights(path)
    path.write_text(text.replace('"c_', '"d_'))
    with pytest.raises((ValueError, KeyError)):
        load_weights(path)
