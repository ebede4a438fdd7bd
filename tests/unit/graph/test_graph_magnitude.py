"""The scale of errors is sum |w||x| where sums cancel, and never zero or below the result."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.graph_builder import Builder, random_inputs
from tilewright.graph.canonical import build_workload
from tilewright.graph.evaluate import magnitude, run_workload
from tilewright.graph.network import Array


def scale_of(
    b: Builder, *, inputs: dict[str, Array] | None = None, coarse: float = 0.0
) -> tuple[Array, Array]:
    graph = b.graph(b.nodes[-1].output)
    workload, names = build_workload(graph, graph.nodes)
    values = {**graph.constants, **(inputs or random_inputs(graph))}
    arrays = [values[name] for name in names]
    return magnitude(workload, arrays, coarse), run_workload(workload, arrays)


def test_cancelling_sum() -> None:
    b = Builder()
    b.add("dense", b.input(1, 2), b.constant([[1.0], [-1.0]]))
    size, value = scale_of(b, inputs={"x0": np.array([[3.0, 3.0]], np.float32)})
    assert value.item() == 0
    assert size.item() == 6


def test_epilogue_adds_and_scales() -> None:
    b = Builder()
    y = b.add("dense", b.input(1, 2), b.constant([[1.0], [-1.0]]))
    y = b.add("add", y, b.constant([-4.0]))
    b.add("relu", b.add("multiply", y, b.constant(-2.0)))
    size, value = scale_of(b, inputs={"x0": np.array([[3.0, 3.0]], np.float32)})
    assert value.item() == 8
    assert size.item() == 20


@pytest.mark.parametrize("anchor", ["conv2d", "softmax", "max_pool2d", "exp", "equal", "divide"])
def test_positive_and_no_smaller_than_the_result(anchor: str) -> None:
    b = Builder()
    x = b.input(1, 4, 6, 6)
    if anchor == "conv2d":
        b.add("sigmoid", b.conv(x, 4))
    elif anchor == "softmax":
        b.add("softmax", x, axis=1)
    elif anchor == "max_pool2d":
        b.add(anchor, x, kernel=(2, 2), strides=(2, 2), padding=(1,) * 4, dilation=(1, 1))
    elif anchor == "exp":
        b.add(anchor, x)
    else:
        b.add(anchor, x, b.constant(2.0))
    size, value = scale_of(b)
    assert (size > 0).all()
    assert (size >= np.abs(value.astype(np.float32))).all()
    assert size.shape == value.shape


def test_a_coarse_product_may_round_to_its_neighbour_and_no_further() -> None:
    b = Builder()
    y = b.add("dense", b.input(1, 2), b.constant([[1.0], [1.0]]))
    b.add("cast", b.add("round", y), dtype="int8")
    near = {"x0": np.array([[2.0, 1.4]], np.float32)}
    fine, coarse = (scale_of(b, inputs=near, coarse=c)[0].item() for c in (0.0, 0.05))
    assert fine * 0.05 < 1.0 <= coarse * 0.05 < 2.0
    far = {"x0": np.array([[2.0, 1.1]], np.float32)}
    assert scale_of(b, inputs=far, coarse=0.05)[0].item() * 0.05 < 1.0


def test_zeros_have_a_scale() -> None:
    b = Builder()
    b.conv(b.input(1, 4, 6, 6), 4)
    size, _ = scale_of(b, inputs={"x0": np.zeros((1, 4, 6, 6), np.float32)})
    assert (size > 0).all()


@pytest.mark.regression
@pytest.mark.parametrize("operator", ["log", "reciprocal", "remainder", "rsqrt", "floor", "divide"])
def test_steps_that_pass_errors_on_larger(operator: str) -> None:
    """Where a sum was 17 and cancelled to nearly nothing, its rounding is all that is left."""
    b = Builder()
    y = b.add("abs", b.add("dense", b.input(4096, 32), b.input(32, 1)))
    if operator == "remainder":
        b.add("remainder", y, b.constant(1.5))
    elif operator == "divide":
        b.add("divide", b.constant(2.0), y)
    else:
        b.add(operator, y)
    rng = np.random.default_rng(1)
    given = {
        "x0": rng.standard_normal((4096, 32), np.float32),
        "x1": rng.standard_normal((32, 1), np.float32),
    }
    size, value = scale_of(b, inputs=given)
    _, right = scale_of(b, inputs={name: array.astype(np.float64) for name, array in given.items()})
    assert np.abs(value - right).max() / np.abs(right).max() > 1e-6 or operator == "floor"
    assert float((np.abs(value - right) / size).max()) < 2e-6
