"""Convolutions that read or write images with their channels innermost (NHWC), against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.convolutions import conv, forms_for
from helpers.kernels.one_kernel import PLACEMENT
from helpers.kernels.packed_kernel import check_kernel, choose
from tilewright.core.forms import CHANNELS_LAST, PLAIN, blocked
from tilewright.kernels import conv2d_direct
from tilewright.kernels.base import Implementation
from tilewright.kernels.conv2d_winograd import TILES_OF_2, TILES_OF_4
from tilewright.kernels.convolution import convolution
from tilewright.kernels.estimates import facts

LANES = PLACEMENT.target.lanes("float32")
PORTS = st.sampled_from(
    [(CHANNELS_LAST, CHANNELS_LAST), (PLAIN, CHANNELS_LAST), (CHANNELS_LAST, blocked(4))]
)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from([3, 8, 32]),
    filters=st.sampled_from([8, LANES + 4, 3 * LANES]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(*[st.integers(0, 1)] * 4),
    ports=PORTS,
    epilogue=st.sampled_from(["", "bru"]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_direct(channels, filters, kernel, strides, padding, ports, epilogue, choice) -> None:
    task = conv(
        (1, channels, 9, 11), filters, kernel, epilogue, strides=strides, padding=padding
    )  # fmt: skip
    check_kernel(task, conv2d_direct.SPEC, forms_for(task, *ports), choice)


def test_groups() -> None:
    task = conv((1, 2 * LANES, 6, 7), 4 * LANES, (3, 3), "b", groups=2, padding=(1,) * 4)
    check_kernel(task, conv2d_direct.SPEC, forms_for(task, CHANNELS_LAST, CHANNELS_LAST))


@pytest.mark.parametrize("spec", [TILES_OF_4, TILES_OF_2])
@pytest.mark.parametrize("choice", [None, 1])
def test_winograd(spec: Implementation, choice: int | None) -> None:
    task = conv((1, 2 * LANES, 9, 8), 2 * LANES, (3, 3), "bru", padding=(1,) * 4)
    check_kernel(task, spec, forms_for(task, CHANNELS_LAST, CHANNELS_LAST), choice)


def test_channels_are_read_a_line_at_a_time_and_counted_as_blocks_are() -> None:
    task, spec = conv((1, 64, 28, 28), 64, (3, 3), padding=(1,) * 4), conv2d_direct.SPEC
    last, blocks = (forms_for(task, f, blocked(LANES)) for f in (CHANNELS_LAST, blocked(16)))
    assert conv2d_direct.data_block(convolution(task), last) == 16
    chosen = [choose(task, spec, last, None)]
    on = PLACEMENT.target, PLACEMENT.resources
    alike = [facts(spec, task, *on, ports, chosen)["estimate_s"] for ports in (last, blocks)]
    np.testing.assert_array_equal(*alike)
