"""What is known of Winograd's convolution of codes before it runs."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.conv2d_winograd_int8 import SPEC
from tilewright.kernels.convolution import convolution
from tilewright.kernels.spaces import default_candidate
from tilewright.kernels.winograd_transforms import double
from tilewright.measure.targeting import placement_of

MEASURED = placement_of("llvm -mcpu=znver4", None, 2)


def conv(channels: int, extent: int, weights: str = "int8") -> Workload:
    named = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    return Workload(
        arguments=(
            Argument(type=TensorType((1, channels, extent, extent), "uint8")),
            Argument(type=TensorType((channels, channels, 3, 3), weights), role="constant"),
        ),
        steps=(Step(operator="conv2d", inputs=(0, 1), attributes=attributes(**named)),),
    )


def default(task: Workload, placement=MEASURED) -> str:
    return default_candidate(task, (blocked(16), PLAIN, blocked(16)), placement)[0].implementation


def test_factors_fit_sixteen_bits() -> None:
    form = SPEC.form(convolution(conv(64, 56)))
    data, weights = (
        np.abs(double(matrix)) for matrix in (form.vertical.input, form.vertical.weight)
    )
    assert 128 * data.sum(axis=1).max() ** 2 < 2**15, "of codes with a sign"
    signed = double(form.vertical.input)
    up, down = np.maximum(signed, 0).sum(axis=1), np.maximum(-signed, 0).sum(axis=1)
    most = np.maximum(np.outer(up, up) + np.outer(down, down), np.outer(up, down) * 2)
    assert 255 * most.max() < 2**15, "of codes without"
    assert 128 * weights.sum(axis=1).max() ** 2 < 2**15


@pytest.mark.parametrize(
    ("channels", "extent", "name"),
    [
        (64, 56, "conv2d_winograd_int8"),
        (128, 28, "conv2d_winograd_int8"),
        (256, 14, "conv2d_winograd_int8"),
        (512, 7, "conv2d_int8"),
    ],
)
def test_estimates_rank_as_measured(channels: int, extent: int, name: str) -> None:
    assert default(conv(channels, extent)) == name


@pytest.mark.parametrize(
    "cpu",
    ["cascadelake", "icelake-server", "sapphirerapids", "alderlake", "haswell", "neoverse-v2"],
)
def test_processors_that_nobody_measured_keep_their_kernels(cpu: str) -> None:
    placement = placement_of(f"llvm -mcpu={cpu}", None, 2)
    assert not SPEC.applies(conv(64, 56), placement.target, placement.resources)


@pytest.mark.parametrize("task", [conv(2048, 8), conv(64, 56, "uint8"), conv(34, 8), conv(16, 16)])
def test_what_it_does_not_take(task: Workload) -> None:
    assert not SPEC.applies(task, MEASURED.target, MEASURED.resources)


def test_the_least_work_is_at_half_the_rate() -> None:
    task = conv(64, 56)
    work = SPEC.least_work(task, MEASURED.target)
    assert work.flop == task.flop / 4
    assert work.speed == 2.0
    assert work.memory_bytes == 36 * 64 * 64 * 2
