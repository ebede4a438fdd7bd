"""Constants and types of an ONNX file: their sizes, and whether their bytes fit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.core.errors import ModelError
from tilewright.graph.network import TensorType
from tilewright.models.onnx_model import (
    array_of,
    check_constant,
    constant_bytes,
    static_type,
    weights_bytes,
)


def raw(kind: int, dims: tuple[int, ...], size_bytes: int) -> TensorProto:
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=bytes(size_bytes))


def test_bytes_of_a_constant_must_fit_its_shape() -> None:
    check_constant(raw(TensorProto.DOUBLE, (2, 3), 48))
    check_constant(raw(TensorProto.BFLOAT16, (2, 3), 12))
    check_constant(raw(TensorProto.FLOAT, (0, 3), 0))
    for given in (15, 17, 0):
        said = rf"'w' is cut short or broken: {given} bytes for a shape \[2, 2\] of 16"
        with pytest.raises(ModelError, match=said):
            check_constant(raw(TensorProto.FLOAT, (2, 2), given))
    with pytest.raises(ModelError, match=r"'w' has the shape \[2, -2\], which is not possible"):
        check_constant(raw(TensorProto.FLOAT, (2, -2), 16))


def test_values_may_be_written_one_by_one() -> None:
    """Older files have no raw bytes, but a list of numbers."""
    listed = helper.make_tensor("w", TensorProto.FLOAT, (2, 2), [1.0, 2.0, 3.0, 4.0])
    assert not listed.HasField("raw_data")
    check_constant(listed)
    assert array_of(listed).tolist() == [[1, 2], [3, 4]]
    short = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], float_data=[1.0])
    with pytest.raises(ModelError, match="'w' is cut short or broken"):
        array_of(short)


def test_constants_of_foreign_types_stay_unread() -> None:
    """Nothing may ask for them; who does is told."""
    foreign = raw(TensorProto.COMPLEX64, (2,), 3)
    check_constant(foreign)
    with pytest.raises(ModelError, match="constant 'w'"):
        array_of(foreign)
    with pytest.raises(ModelError, match="the weight"):
        constant_bytes(foreign, "the weight")


def test_all_weights_of_a_file_add_up() -> None:
    weights = [
        numpy_helper.from_array(np.zeros((2, 3), np.float32), "a"),
        numpy_helper.from_array(np.zeros(5, np.int8), "b"),
        numpy_helper.from_array(np.zeros((), np.int64), "c"),
        raw(TensorProto.COMPLEX64, (100,), 800),
    ]
    graph = helper.make_graph([], "test", [], [], weights)
    assert weights_bytes(helper.make_model(graph)) == 24 + 5 + 8


def test_types_are_static_where_every_extent_is_a_number() -> None:
    def kind(shape: tuple[int | str | None, ...] | None, element: int = TensorProto.FLOAT):
        return static_type(helper.make_tensor_value_info("x", element, shape))

    assert kind((2, 3)) == TensorType((2, 3), "float32")
    assert kind((), TensorProto.INT64) == TensorType((), "int64")
    assert kind((2, 0)) == TensorType((2, 0), "float32")
    for shape in ((2, "n"), (None, 3), (2, -1), None):
        assert kind(shape) is None
    assert kind((2,), TensorProto.STRING) is None
    assert static_type(onnx.ValueInfoProto(name="x")) is None


def test_what_cleans_a_file_has_so_much_memory_and_no_more() -> None:
    """In a process of its own; the limit counts what is taken beyond what the process has, and ends
    with the work."""
    script = (
        "from tilewright.models.clean import _limited\n"
        "take = _limited(lambda size: len(bytearray(size)))\n"
        "assert take(1 << 20, 16 << 20) == 1 << 20\n"
        "try:\n"
        "    take(64 << 20, 16 << 20)\n"
        "except MemoryError:\n"
        "    print('refused', take(64 << 20, 1 << 30) == len(bytearray(64 << 20)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused True\n", "")
