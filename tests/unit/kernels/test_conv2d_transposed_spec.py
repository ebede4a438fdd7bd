from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, blocks_of, check_packing, check_space
from tilewright.core.forms import PLAIN, blocked
from tilewright.kernels.conv2d_transposed import SPEC, Phases, transposed_convolution
from tilewright.testing.implementations import PLACEMENTS, candidate_of, made_up_placement, single


def transposed(channels, extents, kernel, **named):
    inputs, outputs, groups = channels
    return single(
        "conv2d_transpose",
        (1, inputs, *extents),
        (inputs, outputs // groups, *kernel),
        constants=(1,),
        groups=groups,
        **named,
    )


def gathered(axis: Phases, data: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """One axis computed from its phases alone."""
    before, after = axis.border(axis.positions)
    padded = np.pad(data, (before, after))
    result = np.zeros(axis.result)
    for y in range(axis.result):
        q, phase = divmod(y, axis.count)
        first = axis.first[phase]
        for tap in range(axis.taps):
            position = q + axis.base[phase] + before - tap * axis.advance
            value = padded[position]
            if first is not None and first + tap * axis.period < axis.kernel:
                result[y] += value * kernel[first + tap * axis.period]
    return result


@settings(max_examples=150, deadline=None)
@given(
    extent=st.integers(1, 7),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 4),
    before=st.integers(0, 2),
    extra=st.integers(0, 2),
)
def test_phases_gather_what_the_definition_scatters(
    extent, kernel, stride, dilation, before, extra
):
    result = (extent - 1) * stride + (kernel - 1) * dilation + 1 + extra - before
    if result < 1:
        return
    task = transposed(
        (1, 1, 1),
        (extent, 1),
        (kernel, 1),
        strides=(stride, 1),
        padding=(before, 0, 0, 0),
        dilation=(dilation, 1),
        output_padding=(extra, 0),
    )
    rng = np.random.default_rng(0)
    data, weights = rng.standard_normal(extent), rng.standard_normal(kernel)
    scattered = np.zeros((extent - 1) * stride + (kernel - 1) * dilation + 1 + extra)
    for i, value in enumerate(data):
        for k, weight in enumerate(weights):
            scattered[i * stride + k * dilation] += value * weight
    found = gathered(transposed_convolution(task).rows, data, weights)
    assert np.allclose(found, scattered[before:])


@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([(3, 8, 1), (16, 32, 1), (16, 16, 2), (6, 6, 6), (64, 34, 2)]),
    extent=st.integers(4, 30),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 3),
    on=st.sampled_from(PLACEMENTS),
)
def test_space_facts_and_packing(channels, extent, kernel, stride, on):
    task = transposed(
        channels,
        (extent, extent + 1),
        kernel,
        strides=(stride, stride),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        output_padding=(0, 0),
    )
    for block in blocks_of(SPEC, task, on):
        forms = (PLAIN, PLAIN, blocked(block) if block else PLAIN)
        assert block == 0 or (channels[1] // channels[2]) % block == 0
        found, facts = check_space(SPEC, task, on, forms)
        assert facts["accumulators"].max() < on.target.vector_registers
        check_packing(SPEC, task, candidate_of(SPEC, best(found, facts), forms))


def test_no_setting_writes_blocks_that_straddle_groups():
    """Other implementations offer such blocks for the same task."""
    named = {"strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1), "output_padding": (0, 0)}
    on = made_up_placement(64)
    for groups, valid in ((1, True), (2, True), (32, False)):
        task = transposed((64, 32, groups), (8, 8), (2, 2), **named)
        setting = {"lanes": 16, "tile_width": 4, "tile_out": 1, "order": "rows"}
        forms = (PLAIN, PLAIN, blocked(16))
        assert SPEC.valid(task, on.target, on.resources, forms, setting) == valid
