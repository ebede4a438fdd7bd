"""The direct convolution's spec, without a compiler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_checks import DEVICES, best, candidate, check_packing, check_space, device, single

from tilewright.graph.layout import PLAIN, blocked
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_direct import SPEC, input_block
from tilewright.kernels.convolution import convolution


def conv(
    data: tuple[int, int, int, int], filters: int, kernel: int = 3, groups: int = 1, **named
) -> Workload:
    pad = kernel // 2
    given_ = {"strides": (1, 1), "padding": (pad,) * 4, "dilation": (1, 1), **named}
    weight = (filters, data[1] // groups, kernel, kernel)
    return single("conv2d", [data, weight], 1, groups=groups, **given_)


@settings(max_examples=40, deadline=None)
@given(
    channels=st.sampled_from([3, 4, 6, 8, 16, 20, 48]),
    filters=st.sampled_from([2, 7, 8, 10, 16, 24, 36, 64]),
    extent=st.sampled_from([1, 7, 17, 35, 73, 149]),
    kernel=st.sampled_from([1, 3, 5]),
    on=st.sampled_from(DEVICES),
    data_block=st.sampled_from([0, 4, 8]),
    result=st.booleans(),
)
def test_every_shape_has_settings_and_sound_facts(
    channels, filters, extent, kernel, on, data_block, result
):
    task = conv((1, channels, extent, extent), filters, kernel)
    data = blocked(data_block) if data_block and channels % data_block == 0 else PLAIN
    block = SPEC.result_blocks(task, on)[0]
    layouts = (data, PLAIN, blocked(block) if result and block else PLAIN)
    found, facts = check_space(SPEC, task, on, layouts)
    for choice in found:
        tile = int(choice["tile_width"]) * int(choice["tile_height"]) * int(choice["tile_out"])
        vectors = -(-int(choice["lanes"]) // on.lanes_f32)
        assert tile * vectors < on.cpu.vector_registers
    check_packing(SPEC, task, candidate(SPEC, best(found, facts), layouts))


@pytest.mark.parametrize("on", DEVICES)
@pytest.mark.parametrize("groups", [2, 4])
def test_groups(on, groups: int):
    task = conv((1, 16, 7, 7), 32, groups=groups)
    block = SPEC.result_blocks(task, on)[0]
    assert (32 // groups) % block == 0, "a chunk must not straddle groups"
    layouts = (blocked(16 // groups), PLAIN, blocked(block))
    found, facts = check_space(SPEC, task, on, layouts)
    check_packing(SPEC, task, candidate(SPEC, best(found, facts), layouts))


def test_packing_puts_each_weight_in_its_place():
    task = conv((1, 8, 5, 5), 6, 3)
    layouts = (blocked(4), PLAIN, blocked(3))
    found, _ = check_space(SPEC, task, DEVICES[0], layouts)
    weights = np.arange(6 * 8 * 9, dtype=np.float32).reshape(6, 8, 3, 3)
    packed = SPEC.pack(task, candidate(SPEC, found[0], layouts), {1: weights})[1]
    for out, inside, row, column in [(0, 0, 0, 0), (5, 7, 2, 1), (4, 3, 1, 2)]:
        chunk, lane = out // 3, out % 3
        value = packed[chunk, inside // 4, row, column, inside % 4, lane]
        assert value == weights[out, inside, row, column]


def test_what_it_does_not_take():
    depthwise = conv((1, 8, 5, 5), 8, groups=8)
    assert not SPEC.applies(depthwise, DEVICES[0])
    dynamic = single("conv2d", [(1, 4, 5, 5), (4, 4, 1, 1)], -1, strides=(1, 1), padding=(0,) * 4,
                     dilation=(1, 1), groups=1)  # fmt: skip
    assert not SPEC.applies(dynamic, DEVICES[0])
    assert SPEC.applies(conv((1, 4, 5, 5), 4), DEVICES[0])


def test_blocks_follow_the_data():
    layouts = (blocked(8), PLAIN, PLAIN)
    assert input_block(convolution(conv((1, 16, 5, 5), 4)), layouts, 2) == 8
    assert input_block(convolution(conv((1, 16, 5, 5), 8, groups=4)), layouts, 2) in (1, 4)
    assert input_block(convolution(conv((1, 3, 5, 5), 4)), (PLAIN,) * 3, 2) == 3


@pytest.mark.parametrize("extent", [7, 17, 35, 73, 149])
def test_defaults_on_odd_extents_use_wide_tiles(extent: int):
    on = device(64, 32)
    task = conv((1, 64, extent, extent), 64)
    layouts = (blocked(16), PLAIN, blocked(16))
    found, facts = check_space(SPEC, task, on, layouts)
    chosen = best(found, facts)
    tile = int(chosen["tile_width"]) * int(chosen["tile_height"]) * int(chosen["tile_out"])
    assert tile >= 8, "eight accumulators hide the latency of a multiply-add"


def test_error_bound_is_tight_and_grows_with_the_sum():
    small = SPEC.error_bound(conv((1, 4, 5, 5), 8))
    large = SPEC.error_bound(conv((1, 512, 5, 5), 8))
    assert 0 < small <= large < 2e-5
