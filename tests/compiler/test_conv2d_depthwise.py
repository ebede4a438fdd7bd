"""Depthwise kernels against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import step
from helpers.kernels.packed_kernel import (
    check_kernel,
    choose,
    constants_workload,
    kernel_error,
)
from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload
from tilewright.kernels.conv2d_depthwise import SPEC
from tilewright.measure.checking import sample_arguments

Pair = tuple[int, int]


def depthwise(
    data: tuple[int, int, int, int],
    multiplier: int,
    kernel: Pair,
    strides: Pair = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: Pair = (1, 1),
) -> Workload:
    """conv2d with one input channel per group, bias, relu."""
    channels = data[1]
    outputs = channels * multiplier
    return constants_workload(
        [data, (outputs, 1, *kernel), (outputs, 1, 1)],
        [1, 2],
        [
            step(
                "conv2d",
                0,
                1,
                strides=strides,
                padding=padding,
                dilation=dilation,
                groups=channels,
            ),
            step("add", 3, 2),
            step("relu", 4),
        ],
    )


@settings(max_examples=14, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from([4, 6, 8, 16]),
    extents=st.tuples(st.integers(7, 12), st.integers(7, 12)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.sampled_from([(1, 1), (1, 2), (2, 1)]),
    result_blocked=st.booleans(),
    data_block=st.sampled_from([0, 2, 4]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_random_geometries(
    channels, extents, kernel, strides, padding, dilation, result_blocked, data_block, choice
):
    if channels % (data_block or 1):
        data_block = 0
    task = depthwise((1, channels, *extents), 1, kernel, strides, padding, dilation)
    data = blocked(data_block) if data_block else PLAIN
    result = blocked(4 if channels % 4 == 0 else 6) if result_blocked else PLAIN
    check_kernel(task, SPEC, (data, PLAIN, PLAIN, result), choice)


@pytest.mark.parametrize("padding", ["inline", "tile"])
@pytest.mark.parametrize("multiplier", [2, 3])
def test_channel_multiplier(multiplier: int, padding: str):
    from helpers.kernels.one_kernel import all_settings

    task = depthwise((2, 4, 6, 7), multiplier, (3, 3), padding=(1, 1, 1, 1))
    forms = (PLAIN, PLAIN, PLAIN, blocked(4))
    chosen = [s for s in all_settings(task, SPEC.name, forms) if s["padding"] == padding]
    assert kernel_error(task, SPEC, forms, chosen[len(chosen) // 2]) <= SPEC.error_bound(task)


def test_a_tile_that_overhangs_an_unpadded_input_reads_no_further():
    from helpers.kernels.one_kernel import all_settings

    task = depthwise((1, 8, 9, 13), 1, (3, 3))
    forms = (blocked(8), PLAIN, PLAIN, blocked(8))
    chosen = [s for s in all_settings(task, SPEC.name, forms) if s["tile_width"] == 6]
    assert chosen
    assert kernel_error(task, SPEC, forms, chosen[-1]) <= SPEC.error_bound(task)


def test_residual_in_another_layout():
    task = constants_workload(
        [(1, 8, 7, 7), (8, 1, 3, 3), (8, 1, 1), (1, 8, 7, 7)],
        [1, 2],
        [
            step("conv2d", 0, 1, strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=8),
            step("add", 4, 2),
            step("add", 5, 3),
            step("clip", 6, minimum=0.0, maximum=6.0),
        ],
    )
    check_kernel(task, SPEC, (blocked(8), PLAIN, PLAIN, blocked(4), blocked(8)))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.sampled_from(["int8", "uint8"]),
    st.sampled_from([(3, 3), (5, 5), (1, 1)]),
    st.sampled_from([(1, 1), (2, 2)]),
    st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 2)]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_codes_are_summed_exactly(dtype, kernel, strides, padding, bare, choice):
    """Whatever the codes are, the largest ones among them."""
    channels = 32
    kinds = [TensorType((1, channels, 11, 9), dtype), TensorType((channels, 1, *kernel), "int8")]
    named = {"strides": strides, "padding": padding, "dilation": (1, 1), "groups": channels}
    steps = [step("conv2d", 0, 1, **named)]
    if not bare:
        kinds += [TensorType((channels, 1, 1), "int32"), TensorType((channels, 1, 1))]
        steps += [
            step("add", 4, 2), step("cast", 5, dtype="float32"), step("multiply", 6, 3),
            step("round", 7), step("clip", 8, minimum=0.0, maximum=255.0),
            step("cast", 9, dtype="uint8"),
        ]  # fmt: skip
    arguments = [Argument(type=k, role="constant" if i else "data") for i, k in enumerate(kinds)]
    task = Workload(arguments=tuple(arguments), steps=tuple(steps))
    arrays = sample_arguments(task, choice)
    arrays[0][:, :8] = np.iinfo(dtype).max
    arrays[1][:8] = -128
    forms = (blocked(16), *(PLAIN,) * (len(kinds) - 1), blocked(16))
    found = choose(task, SPEC, forms, choice)
    assert kernel_error(task, SPEC, forms, found, arrays=arrays) <= 1e-10
    assert SPEC.error_bound(task) <= 1e-10
