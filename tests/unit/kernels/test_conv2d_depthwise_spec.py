from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.spec_checks import best, blocks_of, check_packing, check_space
from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_depthwise import SPEC
from tilewright.testing.implementations import PLACEMENTS, candidate_of, made_up_placement, single


def depthwise(channels: int, extent: int, kernel: int, stride: int, multiplier: int) -> Workload:
    return single(
        "conv2d",
        (1, channels, extent, extent),
        (channels * multiplier, 1, kernel, kernel),
        constants=(1,),
        strides=(stride, stride),
        padding=(kernel // 2,) * 4,
        dilation=(1, 1),
        groups=channels,
    )


@settings(max_examples=30, deadline=None)
@given(
    channels=st.sampled_from([1, 3, 11, 17, 24, 32, 44, 88, 144, 960]),
    extent=st.integers(7, 57),
    kernel=st.sampled_from([1, 3, 5, 7]),
    stride=st.integers(1, 2),
    multiplier=st.integers(1, 2),
    on=st.sampled_from(PLACEMENTS),
)
def test_space_facts_and_packing(channels, extent, kernel, stride, multiplier, on):
    task = depthwise(channels, extent, kernel, stride, multiplier)
    for block in blocks_of(SPEC, task, on):
        forms = (PLAIN, PLAIN, blocked(block) if block else PLAIN)
        assert block == 0 or (channels * multiplier) % block == 0
        found, facts = check_space(SPEC, task, on, forms)
        check_packing(SPEC, task, candidate_of(SPEC, best(found, facts), forms))


def test_only_depthwise_with_constant_weights():
    assert SPEC.applies(
        depthwise(8, 9, 3, 1, 1), made_up_placement().target, made_up_placement().resources
    )
    shapes = [(1, 8, 9, 9), (8, 2, 3, 3)]
    named = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
    assert not SPEC.applies(
        single("conv2d", *shapes, constants=(1,), groups=4, **named),
        made_up_placement().target,
        made_up_placement().resources,
    )
    shapes = [(1, 8, 9, 9), (8, 1, 3, 3)]
    assert not SPEC.applies(
        single("conv2d", *shapes, groups=8, **named),
        made_up_placement().target,
        made_up_placement().resources,
    )


@pytest.mark.parametrize("on", PLACEMENTS)
def test_tiles_fit_the_registers(on):
    task = depthwise(64, 28, 3, 1, 1)
    forms = (PLAIN, PLAIN, blocked(on.target.lanes("float32")))
    _, facts = check_space(SPEC, task, on, forms)
    assert facts["accumulators"].max() < on.target.vector_registers


def test_an_even_tile_is_the_default():
    task = depthwise(32, 112, 3, 1, 1)
    forms = (blocked(16), PLAIN, blocked(16))
    found, facts = check_space(SPEC, task, made_up_placement(), forms)
    assert 112 % int(best(found, facts)["tile_width"]) == 0
    assert best(found, facts)["padding"] == "inline"
