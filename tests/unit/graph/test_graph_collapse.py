"""Collapsing the rows of pointwise convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.tasks import collapse_rows
from tilewright.graph.workload import Argument, Step, Workload

PLANE = (5, 7)


def pointwise(*extra: tuple[int, ...], steps: tuple[Step, ...] = (), **named) -> Workload:
    defaults = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1}
    kernel = named.pop("kernel", (1, 1))
    arguments = (
        Argument(type=TensorType((1, 6, *PLANE))),
        Argument(type=TensorType((4, 6, *kernel)), role="constant"),
        *(Argument(type=TensorType(shape)) for shape in extra),
    )
    anchor = Step(operator="conv2d", inputs=(0, 1), attributes=attributes(**{**defaults, **named}))
    return Workload(arguments=arguments, steps=(anchor, *steps))


def add(*inputs: int) -> Step:
    return Step(operator="add", inputs=inputs)


@pytest.mark.parametrize("residual", [(1, 4, *PLANE), (4, 1, 1), (1, 4, 1, 1), (1,), PLANE])
def test_values_and_memory_stay(residual: tuple[int, ...]) -> None:
    task = pointwise(residual, steps=(add(3, 2), Step(operator="relu", inputs=(4,))))
    flat = collapse_rows(task)
    assert flat.result.shape == (1, 4, 1, 35) or flat == task
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.type.shape).astype(np.float32) for a in task.arguments]
    merged = [a.reshape(f.type.shape) for a, f in zip(arrays, flat.arguments, strict=True)]
    got = run_workload(flat, merged).reshape(task.result.shape)
    np.testing.assert_allclose(got, run_workload(task, arrays), rtol=1e-5, atol=1e-5)


def test_a_bias_and_a_residual_collapse() -> None:
    task = pointwise((4, 1, 1), (1, 4, *PLANE), steps=(add(4, 2), add(5, 3)))
    flat = collapse_rows(task)
    shapes = [a.type.shape for a in flat.arguments]
    assert shapes == [(1, 6, 1, 35), (4, 6, 1, 1), (4, 1, 1), (1, 4, 1, 35)]
    assert collapse_rows(flat) is flat
    assert flat.flop == task.flop


@pytest.mark.parametrize(
    "named",
    [{"strides": (2, 2)}, {"padding": (0, 0, 1, 0)}, {"kernel": (3, 3), "padding": (1,) * 4}],
)
def test_other_convolutions_stay(named: dict) -> None:
    task = pointwise(**named)
    assert collapse_rows(task) is task


def test_operands_along_one_axis_only_stay() -> None:
    task = pointwise((1, 4, 1, 7), steps=(add(3, 2),))
    assert collapse_rows(task) is task


def test_grouped_pointwise_keeps_its_groups() -> None:
    arguments = (
        Argument(type=TensorType((1, 6, *PLANE))),
        Argument(type=TensorType((4, 3, 1, 1)), role="constant"),
    )
    named = attributes(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=2)
    step = Step(operator="conv2d", inputs=(0, 1), attributes=named)
    assert collapse_rows(Workload(arguments=arguments, steps=(step,))).result.shape == (1, 4, 1, 35)


def test_weights_with_the_shape_of_the_plane_are_not_data() -> None:
    arguments = (
        Argument(type=TensorType((1, 6, 1, 1))),
        Argument(type=TensorType((4, 6, 1, 1)), role="constant"),
    )
    named = attributes(strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)
    step = Step(operator="conv2d", inputs=(0, 1), attributes=named)
    task = Workload(arguments=arguments, steps=(step,))
    assert collapse_rows(task) is task
