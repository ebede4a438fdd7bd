"""A form per tensor."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import PLAIN, blocked, channel_block
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.generic import CACHE_WRITE
from tilewright.testing.implementations import PLACEMENTS, made_up_placement

ON = made_up_placement(64)
POOL = {"kernel": (2, 2), "strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1)}


def test_convolutions_and_pools_are_blocked_and_the_ends_plain():
    b = Builder()
    x = b.input(1, 3, 8, 8)
    first = b.conv(x, 32)
    pooled = b.add("max_pool2d", first, **POOL)
    last = b.conv(pooled, 32)
    forms = choose_forms(fused(b, last), ON.target, ON.resources)
    assert forms[x] == forms[last] == PLAIN
    assert forms[first] == forms[pooled] == blocked(16)


def test_a_tensor_that_is_flattened_next_stays_plain():
    b = Builder()
    made = b.conv(b.input(1, 16, 4, 4), 16)
    flat = b.add("reshape", made, shape=(1, 256))
    assert (
        choose_forms(fused(b, b.add("softmax", flat, axis=1)), ON.target, ON.resources)[made]
        == PLAIN
    )


def turned(b: Builder, tokens: str, height: int, width: int) -> str:
    """[n, height * width, c] as an image, channels first."""
    batch, _, channels = b.types[tokens].shape
    image = b.add("reshape", tokens, shape=(batch, height, width, channels))
    return b.add("transpose", image, permutation=(0, 3, 1, 2))


@pytest.mark.parametrize(("channels", "form"), [(32, blocked(16)), (24, PLAIN), (3, PLAIN)])
def test_what_turns_between_channels_first_and_last_is_blocked_beside_convolutions(channels, form):
    b = Builder()
    image = turned(b, b.input(1, 64, channels), 8, 8)
    made = b.conv(image, channels, groups=channels)
    last = b.add("transpose", made, permutation=(0, 2, 3, 1))
    forms = choose_forms(fused(b, b.add("softmax", last, axis=3)), ON.target, ON.resources)
    assert forms[image] == forms[made] == form
    assert forms[last] == PLAIN


def test_it_is_blocked_behind_a_concatenation_of_resized_images_too():
    b = Builder()
    large = turned(b, b.input(1, 64, 16), 8, 8)
    small = turned(b, b.input(1, 16, 16), 4, 4)
    named = {"coordinate": "asymmetric", "rounding": "floor", "scales": (1.0, 1.0, 2.0, 2.0)}
    resized = b.add("resize_nearest", small, shape=(1, 16, 8, 8), **named)
    both = b.add("concat", large, resized, axis=1)
    forms = choose_forms(fused(b, b.conv(both, 16)), ON.target, ON.resources)
    assert forms[large] == forms[resized] == forms[both] == blocked(16)


def test_what_keeps_the_innermost_axis_stays_plain():
    """Channels are shuffled: rows are copied as they are."""
    b = Builder()
    split = b.add("reshape", b.conv(b.input(1, 16, 8, 8), 32), shape=(1, 4, 8, 8, 8))
    mixed = b.add("transpose", split, permutation=(0, 2, 1, 3, 4))
    shuffled = b.add("reshape", mixed, shape=(1, 32, 8, 8))
    forms = choose_forms(fused(b, b.conv(shuffled, 32, groups=32)), ON.target, ON.resources)
    assert forms[shuffled] == PLAIN


def test_heads_of_attention_stay_plain():
    b = Builder()
    split = b.add("reshape", b.input(1, 49, 32), shape=(1, 49, 2, 16))
    heads = b.add("transpose", split, permutation=(0, 2, 3, 1))
    forms = choose_forms(fused(b, b.add("softmax", heads, axis=3)), ON.target, ON.resources)
    assert set(forms.values()) == {PLAIN}


def test_what_an_opaque_operator_reads_is_plain():
    b = Builder()
    made = b.conv(b.input(1, 16, 8, 8), 32)
    carried = b.add("opaque", made, results='[["float32",[1,32,8,8]]]', model="")
    forms = choose_forms(fused(b, b.conv(carried, 16)), ON.target, ON.resources)
    assert forms[made] == forms[carried] == PLAIN


def test_what_a_write_to_a_cache_reads_is_plain():
    b = Builder()
    made = b.add("relu", b.conv(b.input(1, 16, 1, 8), 32, kernel=1))
    cache, place = b.input(1, 32, 4, 8), b.input(1, dtype="int64")
    network = fused(b, b.add("cache_write", cache, made, place, axis=2))
    forms = choose_forms(network, ON.target, ON.resources)
    assert forms[made] == PLAIN
    task, kinds = network.calls[-1].workload, (PLAIN, blocked(16), PLAIN, PLAIN)
    assert CACHE_WRITE.valid(task, ON.target, ON.resources, (PLAIN,) * 4, ())
    assert not CACHE_WRITE.valid(task, ON.target, ON.resources, kinds, ())


def test_what_a_convolution_only_adds_or_weighs_by_stays_plain():
    b = Builder()
    added = turned(b, b.input(1, 64, 32), 8, 8)
    sums = b.add("add", b.conv(b.input(1, 16, 8, 8), 32), added)
    weights = turned(b, b.input(16, 9, 32), 3, 3)
    named = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    network = fused(b, b.add("conv2d", sums, weights, **named))
    forms = choose_forms(network, ON.target, ON.resources)
    assert forms[sums] == blocked(16)
    assert forms[added] == forms[weights] == PLAIN


def test_without_vector_registers_nothing_that_turns_is_in_blocks_of_one():
    b = Builder()
    image = turned(b, b.input(1, 64, 32), 8, 8)
    network, on = fused(b, b.conv(image, 32)), made_up_placement(4)
    assert on.target.lanes("float32") == 1
    assert choose_forms(network, on.target, on.resources)[image] == PLAIN


def test_a_residual_keeps_one_layout():
    b = Builder()
    x = b.conv(b.input(1, 16, 8, 8), 32)
    y = b.add("relu", b.add("add", b.conv(b.add("relu", b.conv(x, 32)), 32), x))
    network = fused(b, b.conv(y, 16))
    forms = choose_forms(network, ON.target, ON.resources)
    inner = [c.output for c in network.calls if c.output not in network.graph.outputs]
    assert {forms[name] for name in inner} == {blocked(16)}


@pytest.mark.parametrize("axis", [1, 2])
def test_concatenations(axis: int):
    b = Builder()
    x = b.input(1, 16, 8, 8)
    both = b.add("concat", b.conv(x, 32), b.conv(x, 32), axis=axis)
    forms = choose_forms(fused(b, b.conv(both, 16)), ON.target, ON.resources)
    assert forms[both] == blocked(16)


@pytest.mark.parametrize(
    ("start", "stop", "step", "form"),
    [(16, 32, 1, blocked(16)), (8, 24, 1, PLAIN), (0, 48, 3, PLAIN)],
)
def test_slices_of_whole_blocks_follow(start, stop, step, form):
    b = Builder()
    x = b.conv(b.input(1, 16, 8, 8), 48)
    bounds = {"starts": (0, start, 0, 0), "stops": (1, stop, 8, 8), "steps": (1, step, 1, 1)}
    part = b.add("slice", x, **bounds)
    last = b.add("add", b.conv(x, 16), b.conv(part, 16))
    assert choose_forms(fused(b, last), ON.target, ON.resources)[part] == form


@pytest.mark.parametrize(("start", "form"), [(16, blocked(16)), (8, PLAIN)])
def test_what_else_is_sliced_does_not_count(start, form):
    """A part of a vector in front of a part of an image, in one call."""
    b = Builder()
    image, vector = b.conv(b.input(1, 16, 8, 8), 48), b.input(64)
    part = b.add("slice", vector, starts=(32,), stops=(48,), steps=(1,))
    wide = b.add("reshape", part, shape=(1, 16, 1, 1))
    named = {"starts": (0, start, 0, 0), "stops": (1, start + 16, 8, 8), "steps": (1,) * 4}
    scaled = b.add("multiply", wide, b.add("slice", image, **named))
    network = fused(b, b.conv(scaled, 16))
    kinds = [Argument(type=b.types[tensor]) for tensor in (vector, image)]
    sliced, shaped, cut, product = (
        Step(operator=node.operator, inputs=inputs, attributes=node.attributes)
        for node, inputs in zip(b.nodes[1:5], [(0,), (2,), (1,), (3, 4)], strict=True)
    )
    workload = Workload(arguments=tuple(kinds), steps=(sliced, shaped, cut, product))
    first, *_, last = network.calls
    whole = replace(last, workload=workload, inputs=(vector, image), output=scaled, name="scaled")
    network = replace(network, calls=(first, whole, last))
    assert choose_forms(network, ON.target, ON.resources)[scaled] == form


def test_parts_with_different_blocks_give_a_block_that_fits():
    b = Builder()
    x = b.input(1, 16, 8, 8)
    both = b.add("concat", b.conv(x, 32), b.conv(x, 20), b.conv(x, 8), axis=1)
    forms = choose_forms(fused(b, b.conv(both, 16)), ON.target, ON.resources)
    assert 60 % channel_block(forms[both]) == 0


@pytest.mark.parametrize("on", PLACEMENTS)
@pytest.mark.parametrize("channels", [1, 7, 12, 24, 36, 48, 331])
def test_blocks_fit_their_tensors_on_every_device(on, channels: int):
    b = Builder()
    x = b.conv(b.input(2, 3, 5, 5), channels)
    y = b.conv(b.add("max_pool2d", x, **{**POOL, "strides": (1, 1)}), channels)
    z = b.add("concat", x, b.conv(x, 2 * channels), axis=1)
    w = b.add("reduce_mean", z, axes=(2, 3), keepdims=True)
    v = b.add("multiply", z, b.add("sigmoid", w))
    network = fused(b, b.conv(v, 8), b.conv(y, 8))
    for tensor, form in choose_forms(network, on.target, on.resources).items():
        shape = network.graph.types[tensor].shape
        assert prod(form.physical_shape(shape)) == prod(shape), "nothing is padded"


def test_every_tensor_has_a_layout():
    b = Builder()
    x, ids = b.input(4, 8), b.input(3, dtype="int64")
    rows = b.add("gather", x, ids, axis=0)
    network = fused(b, b.add("softmax", rows, axis=1))
    forms = choose_forms(network, ON.target, ON.resources)
    assert set(forms.values()) == {PLAIN}
    named = {t for c in network.calls for t in (*c.inputs, c.output)} - {*network.graph.constants}
    assert named <= set(forms)


@pytest.mark.parametrize(("groups", "form"), [(1, blocked(16)), (2, blocked(16)), (32, PLAIN)])
def test_blocks_of_what_is_turned_next_lie_within_groups(groups, form):
    """What a transposed convolution of several groups writes (as `Fold` does) before it is turned
    is in blocks only where these lie within groups."""
    b = Builder()
    named = {"strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1), "output_padding": (0, 0)}
    weights = b.weight(64, 32 // groups, 2, 2)
    made = b.add("conv2d_transpose", b.input(1, 64, 8, 8), weights, groups=groups, **named)
    turned_back = b.add("transpose", made, permutation=(0, 2, 3, 1))
    network = fused(
        b, b.add("layer_norm", turned_back, b.weight(32), b.weight(32), axis=3, epsilon=1e-5)
    )
    forms = choose_forms(network, ON.target, ON.resources)
    assert forms[made] == form
