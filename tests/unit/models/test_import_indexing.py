"""Running sums, one-hot vectors, sequences turned around and caches, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from helpers.networks.onnx_models import check_node, folded, int64, model_of, normal
from tilewright.graph.evaluate import run_graph


@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
@pytest.mark.parametrize("shape", [(1,), (5,), (4, 8), (2, 3, 5, 4)], ids=str)
@pytest.mark.parametrize("named", [{}, {"exclusive": 1}, {"reverse": 1},
                                   {"exclusive": 1, "reverse": 1}], ids=str)  # fmt: skip
def test_running_sums(shape: tuple[int, ...], named: dict[str, int], dtype: str) -> None:
    x = (normal(*shape) * 9).astype(dtype)
    for axis in {0, -1, len(shape) // 2}:
        check_node("CumSum", {"x": x}, constants={"a": np.asarray(axis)}, **named)


@pytest.mark.parametrize("named", [{}, {"exclusive": 1}, {"reverse": 1}], ids=str)
def test_running_products(named: dict[str, int]) -> None:
    x = normal(3, 7)
    node = helper.make_node("CumProd", ["x", "a"], ["y"], name="node", **named)
    model = model_of([node], {"x": x}, opset=26, constants={"a": np.asarray(1)})
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(run_graph(folded(model), {"x": x})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_vectors(axis: int) -> None:
    indices = np.array([[0, 3, -1], [-4, 7, 2]])
    for depth in (np.asarray(4), int64(4)):
        constants = {"d": depth, "v": np.array([-1.5, 2], np.float32)}
        check_node("OneHot", {"x": indices}, constants=constants, axis=axis)
    values = np.array([5, 6])
    check_node("OneHot", {"x": indices, "v": values}, constants={"d": int64(4)}, order="xdv")


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_sequences_turned_around(time: int, batch: int) -> None:
    x = normal(4, 4, 3)
    named = {"time_axis": time, "batch_axis": batch}
    check_node("ReverseSequence", {"x": x, "n": int64(1, 2, 4, 3)}, **named)


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 5, 4)], ids=str)
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_new_rows_in_a_cache(mode: str, shape: tuple[int, ...]) -> None:
    new = normal(*shape[:-2], 2, shape[-1], seed=1)
    feed: dict[str, Any] = {"x": normal(*shape), "n": new}
    feed["i"] = int64(3, 4 if mode == "circular" else 0)
    check_node("TensorScatter", feed, opset=24, mode=mode)
    if len(shape) == 4:
        first = {**feed, "n": normal(2, 2, *shape[2:], seed=2), "i": int64(0, 1)}
        check_node("TensorScatter", first, opset=24, mode=mode, axis=1)
    alone = {"x": feed["x"][:1], "n": new[:1], "i": feed["i"][:1]}
    check_node("TensorScatter", alone, opset=24, mode=mode)
    del feed["i"]
    check_node("TensorScatter", feed, opset=24, mode=mode)
