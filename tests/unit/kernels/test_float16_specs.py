"""Specs of products of float16, and what does not fit it, without a compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import PLAIN, blocked, stored_in
from tilewright.core.records import Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.conv2d_float16 import SPEC as CONVOLUTION
from tilewright.kernels.convolution import convolution
from tilewright.kernels.dense_float16 import SPEC as DENSE
from tilewright.kernels.float16_range import unfit
from tilewright.kernels.float16_sums import error_of_runs
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.half_forms import alone_in_halves, in_halves
from tilewright.kernels.half_noise import finer_rounders
from tilewright.kernels.halves import converts_float16, half_type, half_types
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.testing.implementations import made_up_placement, single

HALF = "float16"


def on(*features: str, vector_bytes: int = 64) -> Placement:
    units = units_of(features, vector_bytes)
    found = altered(made_up_placement(vector_bytes), features=features, units=units)
    return replace(found, precision=HALF)


MULTIPLIES, CONVERTS, NEITHER = on("avx512fp16"), on("f16c", vector_bytes=32), on()


def conv(channels: int, filters: int, extent: int = 28, kernel: int = 1) -> Workload:
    return single(
        "conv2d", (1, channels, extent, extent), (filters, channels, kernel, kernel),
        constants=(1,), strides=(1, 1), padding=(kernel // 2,) * 4, dilation=(1, 1), groups=1,
    )  # fmt: skip


def dense(rows: int, depth: int, columns: int) -> Workload:
    return single("dense", (rows, depth), (depth, columns), constants=(1,))


def half(form: object = PLAIN) -> object:
    return stored_in(form, HALF)  # type: ignore[arg-type]


def names(task: Workload, forms: tuple, placement: Placement) -> set[str]:
    return {space.spec.name for space in spaces(task, forms, placement)}


def test_it_takes_a_processor_that_multiplies_halves_or_converts_them() -> None:
    assert converts_float16(MULTIPLIES.target) and converts_float16(CONVERTS.target)
    assert not converts_float16(NEITHER.target)
    images, rows = (half(blocked(32)), PLAIN, half(blocked(32))), (half(), PLAIN, half())
    assert CONVOLUTION.name in names(conv(64, 64), images, MULTIPLIES)
    assert CONVOLUTION.name not in [
        s.name
        for s in (CONVOLUTION,)
        if s.applies(conv(64, 64), CONVERTS.target, CONVERTS.resources)
    ]
    for place, lengths in ((MULTIPLIES, {32, 16, 0}), (CONVERTS, {0})):
        (space,) = (s for s in spaces(dense(8, 64, 64), rows, place) if s.spec is DENSE)
        found = {space.part.candidate(int(number)).setting("run") for number in space.numbers}
        assert found == lengths
    assert not DENSE.applies(dense(8, 64, 64), NEITHER.target, NEITHER.resources)


def test_products_are_in_float16_where_their_data_lies_in_it() -> None:
    task, single_ = conv(64, 64), (blocked(32), PLAIN, half(blocked(32)))
    assert CONVOLUTION.name not in names(task, single_, MULTIPLIES)  # type: ignore[arg-type]
    exact = replace(MULTIPLIES, precision="float32")
    with_halves = (half(blocked(32)), PLAIN, half(blocked(32)))
    found, seconds = default_candidate(task, with_halves, MULTIPLIES)  # type: ignore[arg-type]
    assert found.implementation == CONVOLUTION.name
    assert seconds < 0.7 * default_candidate(task, (blocked(16), PLAIN, blocked(16)), exact)[1]
    assert alone_in_halves(task, (blocked(32), PLAIN, blocked(32)), MULTIPLIES) == with_halves


def test_a_row_of_halves_streams_half_the_bytes_on_any_processor_that_converts() -> None:
    task, rows = dense(1, 4096, 4096), (half(), PLAIN, half())
    for place in (MULTIPLIES, CONVERTS):
        found, seconds = default_candidate(task, rows, place)  # type: ignore[arg-type]
        assert found.implementation == DENSE.name and found.setting("run") == 0
        exact = replace(place, precision="float32")
        assert seconds < 0.7 * default_candidate(task, (PLAIN,) * 3, exact)[1]


def test_tensors_between_streaming_layers_are_halves() -> None:
    b = Builder()
    hidden = b.add("relu", b.add("dense", b.input(1, 512), b.weight(512, 2048)))
    network = fused(b, b.add("dense", hidden, b.weight(2048, 64)))
    usual = choose_forms(network, CONVERTS.target, CONVERTS.resources)
    assert half_type(CONVERTS) == HALF
    mixed = [half_types(replace(on, precision="auto")) for on in (CONVERTS, MULTIPLIES)]
    assert mixed == [("bfloat16",), ("bfloat16", HALF)] and half_types(MULTIPLIES) == (HALF,)
    assert in_halves(network, usual, CONVERTS)[hidden].dtype == HALF
    assert in_halves(network, usual, CONVERTS, [hidden])[hidden].dtype is None


def test_a_processor_that_only_converts_stores_what_streaming_layers_read() -> None:
    b = Builder()
    image = b.add("relu", b.conv(b.input(1, 32, 8, 8), 32))
    means = b.add("reduce_mean", b.conv(image, 2048), axes=(2, 3), keepdims=False)
    network = fused(b, b.add("dense", means, b.weight(2048, 512)))
    usual = choose_forms(network, CONVERTS.target, CONVERTS.resources)
    stored = {name for name, form in in_halves(network, usual, CONVERTS).items() if form.dtype}
    assert stored == {means}, "where others would convert, nothing is gained"
    every = in_halves(network, usual, MULTIPLIES)
    assert len([name for name, form in every.items() if form.dtype == HALF]) > 1


def test_several_rows_gain_nothing_where_weights_are_widened_for_each_tile() -> None:
    task, exact = dense(128, 768, 3072), replace(CONVERTS, precision="float32")
    seconds = default_candidate(task, (half(), PLAIN, half()), CONVERTS)[1]  # type: ignore[arg-type]
    assert seconds > default_candidate(task, (PLAIN,) * 3, exact)[1]


@given(st.integers(1, 20_000), st.sampled_from([16, 32, 48]))
def test_errors_of_runs_cancel_out_in_long_sums(length: int, run: int) -> None:
    bound = error_of_runs(length, run)
    assert error_of_runs(length + 1000, run) <= bound or length < run
    assert 0 < bound <= 2.0**-11 * (2 + run)


def test_weights_are_rounded_and_stay_finite() -> None:
    task = dense(4, 33, 20)
    candidate, _ = default_candidate(task, (half(), PLAIN, half()), MULTIPLIES)  # type: ignore[arg-type]
    assert candidate.implementation == DENSE.name
    weights = np.full((33, 20), 1e6, np.float32)
    packed = DENSE.pack(task, candidate, {1: weights})[1]
    assert packed.dtype == np.float16 and packed.shape == DENSE.packed_shapes(task, candidate)[1]
    assert packed.max() == 65504 and not packed[:, 33:].any()


@pytest.mark.parametrize(
    ("channels", "arriving", "block"),
    [(64, 64, 32), (64, 16, 16), (48, 0, 16), (3, 0, 3), (37, 0, 16)],
)
def test_a_run_is_a_block_of_channels(channels: int, arriving: int, block: int) -> None:
    task, form = conv(channels, 32), blocked(arriving) if arriving else PLAIN
    forms = (stored_in(form, HALF), PLAIN, stored_in(blocked(32), HALF))
    geometry = convolution(task)
    assert CONVOLUTION.input_block(geometry, forms, {}) == block
    assert CONVOLUTION.copied(geometry, forms, {}) == (not arriving)


@pytest.mark.parametrize(
    ("channels", "filters", "extent", "name"),
    [
        (64, 64, 56, "conv2d_winograd_float16"),
        (256, 256, 28, "conv2d_winograd_float16"),
        (512, 512, 7, "conv2d_winograd2_float16"),
        (128, 32, 7, "conv2d_float16"),
    ],
)
def test_winograds_forms_are_chosen_where_they_are_fastest(channels, filters, extent, name):
    task, form = conv(channels, filters, extent, kernel=3), stored_in(blocked(32), HALF)
    forms = (form, PLAIN, form)
    found, _ = default_candidate(task, forms, MULTIPLIES, max_error=1e-2)
    assert found.implementation == name
    exact, _ = default_candidate(task, forms, MULTIPLIES, max_error=1e-3)
    assert exact.implementation != "conv2d_winograd_float16", "its bound is above"
    assert not [each for each in names(task, (PLAIN,) * 3, CONVERTS) if "winograd_float16" in each]


def test_winograds_algorithms_are_told_by_those_of_bfloat16() -> None:
    both = replace(on("avx512fp16", "avx512bf16"), precision="auto")
    task, types = conv(64, 64, kernel=3), ("bfloat16", HALF)
    names = ["conv2d_winograd", "conv2d_winograd2"]
    assert finer_rounders(task, both, types) == tuple(
        (f"{n}_bfloat16", f"{n}_{HALF}") for n in names
    )
    alone = finer_rounders(task, replace(MULTIPLIES, precision="auto"), types)
    assert alone == tuple(("", f"{name}_{HALF}") for name in names)


def test_images_lie_in_whole_registers_of_halves() -> None:
    b = Builder()
    image = b.conv(b.input(1, 32, 8, 8), 64)
    network = fused(b, b.add("reduce_mean", b.conv(image, 64), axes=(2, 3), keepdims=False))
    lying = choose_forms(network, MULTIPLIES.target, MULTIPLIES.resources, HALF)
    assert lying[network.calls[0].output] == blocked(32)
    assert choose_forms(network, CONVERTS.target, CONVERTS.resources, HALF) != lying


def test_what_does_not_fit_is_named() -> None:
    b = Builder()
    x = b.add("relu", b.input(1, 32, 8, 8))
    weights = b.weight(32, 32, 1, 1)
    y = b.add("conv2d", x, weights, strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)
    network = fused(b, b.add("reduce_mean", y, axes=(2, 3), keepdims=False))
    read = next(c for c in network.calls if c.workload.anchor_name == "conv2d").inputs
    data = next(name for name in read if name != weights)
    fine = {data: (10.0, 3e-4), weights: (1.0, 3e-4)}
    assert unfit(network, fine, in_runs=True) == {}
    large = unfit(network, {**fine, data: (3e4, 3e-4)}, in_runs=False)
    assert large == {data: f"{data} (up to 3e+04)"}, "other inputs may be larger"
    tiny = unfit(network, {**fine, weights: (1e-6, 0.2)}, in_runs=False)
    assert data in tiny and weights in tiny[data]
    product = {**fine, data: (1e3, 3e-4), weights: (50.0, 3e-4)}
    assert data in unfit(network, product, in_runs=True) and not unfit(
        network, product, in_runs=False
    )
