"""The transforms' algebra, and what every spec must keep."""

from __future__ import annotations

import numpy as np
import pytest
from spec_checks import DEVICES

from tilewright.graph.layout import blocked
from tilewright.graph.network import attributes
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.conv2d_winograd import (
    INPUT_TRANSFORM,
    OUTPUT_TRANSFORM,
    SPEC,
    WEIGHT_TRANSFORM,
)
from tilewright.tune.space import TaskSpace


def test_transforms_compute_a_correlation() -> None:
    rng = np.random.default_rng(0)
    data, weights = rng.standard_normal(6), rng.standard_normal(3)
    transformed = np.array(INPUT_TRANSFORM, float).T @ data * (WEIGHT_TRANSFORM @ weights)
    ours = np.array(OUTPUT_TRANSFORM, float).T @ transformed
    assert ours == pytest.approx(np.correlate(data, weights, mode="valid"), rel=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_space_and_facts(device) -> None:
    lanes = device.lanes_f32
    task = Workload(
        arguments=(
            Argument(type=TensorType((1, 4 * lanes, 14, 14))),
            Argument(type=TensorType((2 * lanes, 4 * lanes, 3, 3)), role="constant"),
        ),
        steps=(
            Step(
                operator="conv2d",
                inputs=(0, 1),
                attributes=attributes(
                    strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1
                ),
            ),
        ),
    )
    layouts = (blocked(lanes), "plain", blocked(lanes))
    space = TaskSpace(workload=task, layouts=layouts, device=device, spec=SPEC)
    settings = [space.part.knobs.settings(int(number)) for number in space.numbers]
    assert settings
    facts = SPEC.facts(task, device, layouts, settings)
    for name, column in facts.items():
        assert column.shape == (len(settings),), name
        assert np.all(np.isfinite(column)) and np.all(column > 0), name
    assert np.all(facts["accumulators"] <= device.cpu.vector_registers)
    candidate = space.part.candidate(int(space.numbers[0]))
    weights = np.zeros((2 * lanes, 4 * lanes, 3, 3), np.float32)
    packed = SPEC.pack(task, candidate, {1: weights})
    assert packed[1].shape == SPEC.packed_shapes(task, candidate)[1]
