"""The direct convolution's spec, without a compiler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, blocks_of, check_packing, check_space
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Settings
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_direct import SPEC, input_blocks
from tilewright.kernels.convolution import convolution
from tilewright.kernels.register_tile import RegisterTile
from tilewright.kernels.search_space import KnobSpace
from tilewright.testing.implementations import PLACEMENTS, candidate_of, made_up_placement, single


def conv(
    data: tuple[int, int, int, int], filters: int, kernel: int = 3, groups: int = 1, **named
) -> Workload:
    pad = kernel // 2
    given_ = {"strides": (1, 1), "padding": (pad,) * 4, "dilation": (1, 1), **named}
    weight = (filters, data[1] // groups, kernel, kernel)
    return single("conv2d", data, weight, constants=(1,), groups=groups, **given_)


@settings(max_examples=40, deadline=None)
@given(
    channels=st.sampled_from([3, 4, 6, 8, 16, 20, 48]),
    filters=st.sampled_from([2, 7, 8, 10, 16, 24, 36, 64]),
    extent=st.sampled_from([1, 7, 17, 35, 73, 149]),
    kernel=st.sampled_from([1, 3, 5]),
    on=st.sampled_from(PLACEMENTS),
    data_block=st.sampled_from([0, 4, 8]),
    result=st.booleans(),
)
def test_every_shape_has_settings_and_sound_facts(
    channels, filters, extent, kernel, on, data_block, result
):
    task = conv((1, channels, extent, extent), filters, kernel)
    data = blocked(data_block) if data_block and channels % data_block == 0 else PLAIN
    block = blocks_of(SPEC, task, on)[0]
    forms = (data, PLAIN, blocked(block) if result and block else PLAIN)
    found, facts = check_space(SPEC, task, on, forms)
    for choice in found:
        tile = int(choice["tile_width"]) * int(choice["tile_height"]) * int(choice["tile_out"])
        vectors = -(-int(choice["lanes"]) // on.target.lanes("float32"))
        assert tile * vectors < on.target.vector_registers
    check_packing(SPEC, task, candidate_of(SPEC, best(found, facts), forms))


@pytest.mark.parametrize("on", PLACEMENTS)
@pytest.mark.parametrize("groups", [2, 4])
def test_groups(on, groups: int):
    task = conv((1, 16, 7, 7), 32, groups=groups)
    block = blocks_of(SPEC, task, on)[0]
    assert (32 // groups) % block == 0, "a chunk must not straddle groups"
    forms = (blocked(16 // groups), PLAIN, blocked(block))
    found, facts = check_space(SPEC, task, on, forms)
    check_packing(SPEC, task, candidate_of(SPEC, best(found, facts), forms))


def test_packing_puts_each_weight_in_its_place():
    task = conv((1, 8, 5, 5), 6, 3)
    forms = (blocked(4), PLAIN, blocked(3))
    found, _ = check_space(SPEC, task, PLACEMENTS[0], forms)
    weights = np.arange(6 * 8 * 9, dtype=np.float32).reshape(6, 8, 3, 3)
    packed = SPEC.pack(task, candidate_of(SPEC, found[0], forms), {1: weights})[1]
    for out, inside, row, column in [(0, 0, 0, 0), (5, 7, 2, 1), (4, 3, 1, 2)]:
        chunk, lane = out // 3, out % 3
        value = packed[chunk, inside // 4, row, column, inside % 4, lane]
        assert value == weights[out, inside, row, column]


def test_what_it_does_not_take():
    depthwise = conv((1, 8, 5, 5), 8, groups=8)
    assert not SPEC.applies(depthwise, PLACEMENTS[0].target, PLACEMENTS[0].resources)
    dynamic = single("conv2d", (1, 4, 5, 5), (4, 4, 1, 1), strides=(1, 1), padding=(0,) * 4,
                     dilation=(1, 1), groups=1)  # fmt: skip
    assert not SPEC.applies(dynamic, PLACEMENTS[0].target, PLACEMENTS[0].resources)
    assert SPEC.applies(conv((1, 4, 5, 5), 4), PLACEMENTS[0].target, PLACEMENTS[0].resources)


@settings(max_examples=30, deadline=None)
@given(
    block=st.sampled_from([0, 4, 8]),
    groups=st.sampled_from([1, 2]),
    kernel=st.sampled_from([1, 2, 3]),
    pick=st.integers(0, 100_000),
)
def test_packed_weights_lie_in_the_order_of_the_loops(block, groups, kernel, pick):
    task = conv((1, 16, 6, 6), 12, kernel, groups)
    forms = (blocked(block) if block else PLAIN, PLAIN, blocked(3))
    found, _ = check_space(SPEC, task, PLACEMENTS[1], forms)
    chosen = candidate_of(SPEC, found[pick % len(found)], forms)
    check_packing(SPEC, task, chosen)
    inside = 16 // groups
    weights = np.arange(12 * inside * kernel**2, dtype=np.float32)
    weights = weights.reshape(12, inside, kernel, kernel)
    packed = SPEC.pack(task, chosen, {1: weights})[1]
    settings_ = dict(chosen.settings)
    lanes_in = int(settings_["in_block"])
    for out, channel, row, column in [(0, 0, 0, 0), (11, inside - 1, kernel - 1, 0), (7, 3, 0, 0)]:
        at = {"chunk": channel // lanes_in, "lane": channel % lanes_in, "ky": row, "kx": column}
        loops = [at[name] for name in str(settings_["reduce_order"]).split(",")]
        assert packed[(out // 3, *loops, out % 3)] == weights[out, channel, row, column]


def test_blocks_follow_the_data():
    on, ports = made_up_placement(64, 32), (blocked(8), PLAIN, PLAIN)
    assert input_blocks(convolution(conv((1, 16, 5, 5), 4)), on.target, ports) == [8, 16]
    assert input_blocks(convolution(conv((1, 16, 5, 5), 4, 1)), on.target, ports) == [8]
    grouped = convolution(conv((1, 16, 5, 5), 8, groups=4))
    assert input_blocks(grouped, on.target, ports)[0] in (1, 4)
    assert input_blocks(convolution(conv((1, 3, 5, 5), 4)), on.target, (PLAIN,) * 3)[0] == 3


RESNET = {
    (64, 56, 64, 3): 1, (128, 28, 128, 3): 1, (256, 14, 256, 3): 1, (512, 7, 512, 3): 1,
    (256, 14, 1024, 1): 1, (256, 56, 256, 3): 2, (3, 224, 64, 7): 2,
}  # fmt: skip


@pytest.mark.parametrize("layer", RESNET)
def test_spaces_stay_small_enough_to_list(layer: tuple[int, int, int, int]):
    channels, extent, filters, kernel = layer
    stride = RESNET[layer]
    task = conv((1, channels, extent, extent), filters, kernel, strides=(stride, stride))
    forms = (blocked(16) if channels > 3 else PLAIN, PLAIN, blocked(16))
    on = made_up_placement(64, 32)
    whole = KnobSpace(knobs=SPEC.knobs(task, on.target, on.resources, forms))
    assert whole.range_length <= 30_000
    assert len(check_space(SPEC, task, on, forms)[0]) < 6000


@pytest.mark.parametrize("block_in", [1, 2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("kernel", [1, 3])
def test_settings_of_the_x86_template_are_there(block_in: int, kernel: int):
    """tile_ic, tile_oc, tile_ow, tile_oh and unroll_kw of AutoTVM's conv2d_NCHWc, as far as the
    register tile stays in registers."""
    on, task = made_up_placement(64, 32), conv((1, 64, 28, 28), 32, kernel)
    for block_out in (8, 16, 32):
        forms = (blocked(block_in) if block_in > 1 else PLAIN, PLAIN, blocked(block_out))
        found = {tuple(sorted(s.items())) for s in check_space(SPEC, task, on, forms)[0]}
        vectors = -(-block_out // 16)
        for width in (1, 2, 4, 7, 14, 28):
            for height in (1, 2) if kernel == 1 else (1,):
                if height > 1 and width > 16:
                    continue
                for unrolled in (False, True) if kernel > 1 else (False,):
                    kept = width * height if unrolled else 1
                    if not RegisterTile(width * height, vectors).fits(32, kept=kept):
                        continue
                    wanted = {
                        "lanes": block_out, "tile_width": width, "tile_height": height,
                        "tile_out": 1, "order": "channels", "in_block": block_in,
                        "reduce_order": "chunk,ky,lane,kx" if unrolled else "chunk,ky,kx,lane",
                        "unroll": "kx" if unrolled else "none",
                        "padding": "stage" if kernel > 1 else "none", "cache_chunks": 0,
                    }  # fmt: skip
                    assert tuple(sorted(wanted.items())) in found


def test_knobs_that_cannot_matter_have_one_value():
    on, forms = made_up_placement(64, 32), (blocked(16), PLAIN, blocked(16))
    knobs = SPEC.knobs(conv((1, 32, 14, 14), 32, 1), on.target, on.resources, forms)
    values = {knob.name: knob.values for knob in knobs}
    assert len(values["reduce_order"]) == len(values["padding"]) == len(values["in_block"]) == 1
    assert values["cache_chunks"] == (0,), "these weights fit the first cache"


def test_cached_chunks_fit_the_first_cache_and_are_used_by_several_tiles():
    on, forms = made_up_placement(64, 32), (blocked(16), PLAIN, blocked(16))
    task = conv((1, 256, 14, 14), 256)
    found, facts = check_space(SPEC, task, on, forms)
    cached = [s for s in found if s["cache_chunks"]]
    assert cached
    for s in cached:
        weights = 4 * int(s["lanes"]) * int(s["cache_chunks"]) * int(s["in_block"]) * 9
        assert weights <= on.target.cache_bytes(1)
        assert int(s["tile_width"]) < 14 or s["order"] == "channels"
    whole = [bool(s["cache_chunks"]) and s["order"] == "channels" for s in found]
    assert (facts["parallel_extent"][whole] <= 16).all(), "a piece is a whole plane"


def test_few_pieces_of_work_may_be_cut_along_columns_too():
    forms = (blocked(16), PLAIN, blocked(16))
    many, few = made_up_placement(64, 32), made_up_placement(64, 32, threads=64)
    task = conv((1, 64, 14, 14), 64)
    values = [
        next(
            knob.values
            for knob in SPEC.knobs(task, on.target, on.resources, forms)
            if knob.name == "order"
        )
        for on in (many, few)
    ]
    assert "tiles" not in values[0]
    assert "tiles" in values[1]


@pytest.mark.parametrize("extent", [7, 17, 35, 73, 149])
def test_defaults_on_odd_extents_use_wide_tiles(extent: int):
    on = made_up_placement(64, 32)
    task = conv((1, 64, extent, extent), 64)
    forms = (blocked(16), PLAIN, blocked(16))
    found, facts = check_space(SPEC, task, on, forms)
    chosen = best(found, facts)
    tile = int(chosen["tile_width"]) * int(chosen["tile_height"]) * int(chosen["tile_out"])
    assert tile >= 8, "eight accumulators hide the latency of a multiply-add"


def default(task: Workload, *forms: Form) -> Settings:
    """The setting with the least estimate, for two threads with 1 MiB of second cache."""
    on = made_up_placement(64, 32)
    return best(*check_space(SPEC, task, on, (forms[0], PLAIN, forms[1])))


@pytest.mark.parametrize(
    ("channels", "pixels", "filters", "order"),
    [(1024, 3136, 256, "rows"), (128, 784, 256, "channels"), (512, 3136, 4096, "channels")],
    ids=["large input", "small input", "large weights"],
)
def test_a_line_whose_input_is_large_is_read_once(channels, pixels, filters, order):
    task = conv((1, channels, 1, pixels), filters, 1)
    assert default(task, blocked(16), blocked(16))["order"] == order


def test_long_plain_signals_are_read_once_and_tiles_end_with_them():
    signal = single(
        "conv2d", (1, 128, 1, 3199), (128, 128, 1, 3), constants=(1,),
        strides=(1, 2), padding=(0,) * 4, dilation=(1, 1), groups=1,
    )  # fmt: skip
    found = default(signal, PLAIN, blocked(16))
    assert found["order"] == "rows"
    assert 1599 % int(found["tile_width"]) == 0


def test_error_bound_is_tight_and_grows_with_the_sum():
    small = SPEC.error_bound(conv((1, 4, 5, 5), 8))
    large = SPEC.error_bound(conv((1, 512, 5, 5), 8))
    assert 0 < small <= large < 2e-5
