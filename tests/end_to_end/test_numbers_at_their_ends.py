"""Numbers that a type cannot hold, or only just: ours are those of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from helpers.commands.command_line import reference
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.models import ModelOptions


def product(path: Path, kind: int, weight: float, scale: float | None) -> Path:
    """`x·w`, scaled where a scale is given."""
    numpy_type = helper.tensor_dtype_to_np_dtype(kind)
    constants = {"w": np.full((64, 32), weight, numpy_type)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y" if scale is None else "h"])]
    if scale is not None:
        constants["s"] = np.array(scale, numpy_type)
        nodes.append(helper.make_node("Mul", ["h", "s"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", kind, [4, 64])],
        [helper.make_tensor_value_info("y", kind, [4, 32])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.mark.parametrize("scale", [None, 1e-3])
def test_results_that_float16_cannot_hold(tmp_path: Path, scale: float | None) -> None:
    """They are infinite, and where they are scaled down in the same kernel they are finite."""
    model = product(tmp_path / "halves.onnx", TensorProto.FLOAT16, 300.0, scale)
    x = np.repeat(np.array([[300.0], [-300.0], [1.0], [0.0]], np.float16), 64, axis=1)
    found = np.asarray(tilewright.compile(model)(x))
    np.testing.assert_array_equal(found, reference(model, {"x": x})["y"])
    assert np.isinf(found[:2]).all() == (scale is None) and np.isfinite(found[2:]).all()


@pytest.mark.skipif(not half_lanes(local_placement().target), reason="no products of bfloat16 here")
def test_denormals_are_zero_at_worst_in_bfloat16(tmp_path: Path) -> None:
    """The processor's products take them for zero; what is normal beside them is not touched."""
    model = product(tmp_path / "singles.onnx", TensorProto.FLOAT, 0.5, None)
    x = np.repeat(np.array([[1e-40], [-3e-39], [1.0], [2e-38]], np.float32), 64, axis=1)
    network = tilewright.compile(model, options=ModelOptions(precision="bfloat16"))
    found, expected = np.asarray(network(x)), reference(model, {"x": x})["y"]
    smallest = np.finfo(np.float32).tiny
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[2:], expected[2:], rtol=1e-2)
    assert np.abs(found[:2] - expected[:2]).max() <= 64 * smallest
