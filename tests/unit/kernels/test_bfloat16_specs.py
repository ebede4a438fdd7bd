"""Specs of products of bfloat16, and which tensors are stored in it, without a compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.kernels.spec_checks import best
from helpers.networks.fused_networks import fused
from helpers.networks.graph_builder import Builder
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN, blocked, stored_in
from tilewright.core.records import Candidate, Placement
from tilewright.cost.floors import least_work
from tilewright.graph.network import Array, TensorType
from tilewright.graph.operators import results_text
from tilewright.graph.workload import Workload
from tilewright.hardware.features import units_of
from tilewright.kernels.conv2d_bfloat16 import SPEC as CONVOLUTION
from tilewright.kernels.conv2d_transposed_bfloat16 import SPEC as TRANSPOSED
from tilewright.kernels.conv2d_winograd_bfloat16 import SPECS, Bfloat16Winograd
from tilewright.kernels.convolution import convolution
from tilewright.kernels.dense_bfloat16 import SPEC as DENSE
from tilewright.kernels.estimates import facts, facts_of_many, saved_bytes
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.half_forms import in_halves
from tilewright.kernels.halves import half_lanes, rounding_error
from tilewright.kernels.registry import implementation, is_allowed, packed_type, takes
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.kernels.winograd_transforms import double, transform
from tilewright.measure.checking import sample_arguments
from tilewright.testing.implementations import candidate_of, made_up_placement, single

HALF = "bfloat16"
WINOGRAD = SPECS[:2]
"""Those for 3×3."""


def with_halves(vector_bytes: int = 64) -> Placement:
    on = made_up_placement(vector_bytes)
    features = ("avx512bf16",)
    found = altered(on, features=features, units=units_of(features, vector_bytes))
    return replace(found, precision=HALF)


ON = with_halves()


def conv(
    channels: int, filters: int, extent: int = 9, kernel: int = 3, groups: int = 1
) -> Workload:
    return single(
        "conv2d", (1, channels, extent, extent), (filters, channels // groups, kernel, kernel),
        constants=(1,), strides=(1, 1), padding=(kernel // 2,) * 4, dilation=(1, 1), groups=groups,
    )  # fmt: skip


def dense(rows: int, depth: int, columns: int) -> Workload:
    return single("dense", (rows, depth), (depth, columns), constants=(1,))


def rounded(array: Array) -> Array:
    """The numbers in bfloat16 as the bits of their upper halves, ties to even."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def chosen(spec, task: Workload, forms) -> Candidate:
    space = knob_space(spec, task, ON.target, ON.resources, forms)
    found = [space.settings(number) for number in space]
    return candidate_of(
        spec, best(found, facts(spec, task, ON.target, ON.resources, forms, found)), forms
    )


@settings(max_examples=30, deadline=None)
@given(
    channels=st.sampled_from([3, 4, 6, 16, 20, 48]),
    filters=st.sampled_from([8, 16, 24, 64]),
    kernel=st.sampled_from([1, 3]),
    data_block=st.sampled_from([0, 4, 16]),
    halves=st.booleans(),
)
def test_weights_are_rounded_and_each_is_in_its_place(
    channels, filters, kernel, data_block, halves
):
    task = conv(channels, filters, kernel=kernel)
    data = blocked(data_block) if data_block and channels % data_block == 0 else PLAIN
    forms = (stored_in(data, HALF) if halves else data, PLAIN, blocked(8))
    candidate = chosen(CONVOLUTION, task, forms)
    weights = sample_arguments(task, 0)[1]
    packed = CONVOLUTION.pack(task, candidate, {1: weights})[1]
    assert packed.shape == CONVOLUTION.packed_shapes(task, candidate)[1]
    assert packed.dtype == packed_type(task, candidate, 1) == "uint16"
    kept, expected = packed[packed != 0], rounded(weights)
    np.testing.assert_array_equal(np.sort(kept), np.sort(expected[expected != 0]))
    chunk = packed[0].reshape(-1, kernel * kernel, packed.shape[1] // (kernel * kernel), 8, 2)
    first = rounded(weights[:8, :2, 0, 0])
    np.testing.assert_array_equal(chunk.reshape(-1, 8, 2)[0], first)


@pytest.mark.parametrize("depth", [16, 33])
def test_a_dense_layer_packs_pairs_along_its_depth(depth: int) -> None:
    task = dense(5, depth, 40)
    candidate = chosen(DENSE, task, (PLAIN,) * 3)
    weights = sample_arguments(task, 0)[1]
    packed = DENSE.pack(task, candidate, {1: weights})[1]
    assert packed.shape == DENSE.packed_shapes(task, candidate)[1]
    chunks, pairs, block, _ = packed.shape
    back = packed.transpose(1, 3, 0, 2).reshape(2 * pairs, chunks * block)
    np.testing.assert_array_equal(back[:depth, :40], rounded(weights))
    assert not back[depth:].any() and not back[:, 40:].any()


@pytest.mark.parametrize("spec", WINOGRAD)
def test_winograds_weights_are_transformed_in_pairs_and_halves(spec: Bfloat16Winograd) -> None:
    task = conv(36, 21)
    forms = (PLAIN,) * 3
    candidate = chosen(spec, task, forms)
    weights = sample_arguments(task, 0)[1].astype(np.float64)
    packed = spec.pack(task, candidate, {1: weights})[1]
    assert packed.shape == spec.packed_shapes(task, candidate)[1]
    assert packed.dtype == packed_type(task, candidate, 1) == "uint16"
    way = spec.form(convolution(task)).vertical
    moved = double(way.weight) @ weights @ double(way.weight).T
    expected = rounded(moved.reshape(21, 36, -1).transpose(2, 1, 0))
    positions, chunks, pairs, lanes, _ = packed.shape
    back = packed.transpose(0, 2, 4, 1, 3).reshape(positions, 2 * pairs, chunks * lanes)
    np.testing.assert_array_equal(back[:, :, :21], expected)
    assert not back[:, :, 21:].any()


def test_it_takes_a_processor_with_the_instruction() -> None:
    assert half_lanes(ON.target) == (16, 8, 4)
    plain = made_up_placement(64)
    halves = [(CONVOLUTION, conv(16, 16)), (DENSE, dense(4, 16, 16))]
    for spec, task in [*halves, *((spec, conv(32, 16)) for spec in WINOGRAD)]:
        assert spec.applies(task, ON.target, ON.resources)
        assert not spec.applies(task, plain.target, plain.resources)
    assert not CONVOLUTION.applies(conv(12, 12, groups=2), ON.target, ON.resources)
    assert not WINOGRAD[0].applies(conv(34, 16), ON.target, ON.resources), "no pairs of lanes"


@pytest.mark.parametrize(
    ("out", "lanes"), [(1, {4}), (3, {4}), (10, {4, 8, 16}), (21, {4, 8, 16}), (16, {16})]
)
def test_channels_of_transposed_convolutions_fill_lanes_of_the_instruction(
    out: int, lanes: set[int]
) -> None:
    """Also where they do not divide them, and where input channels are no pairs."""
    task = single(
        "conv2d_transpose", (1, 7, 5, 5), (7, out, 2, 2), constants=(1,), strides=(2, 2),
        padding=(0,) * 4, dilation=(1, 1), output_padding=(0, 0), groups=1,
    )  # fmt: skip
    space = knob_space(TRANSPOSED, task, ON.target, ON.resources, (PLAIN,) * 3)
    assert {space.settings(number)["lanes"] for number in space} == lanes
    torn = (PLAIN, PLAIN, blocked(out))
    fits = [*knob_space(TRANSPOSED, task, ON.target, ON.resources, torn)]
    assert bool(fits) == (out == 16), "blocks of other sizes are no lanes"


def test_single_precision_stays_unless_halves_are_asked_for() -> None:
    task, forms = conv(64, 64), (blocked(16), PLAIN, blocked(16))
    allowed = [space.spec.name for space in spaces(task, forms, ON)]
    assert CONVOLUTION.name in allowed
    exact = replace(ON, precision="float32")
    assert CONVOLUTION.name not in [space.spec.name for space in spaces(task, forms, exact)]
    measured = chosen(CONVOLUTION, task, forms)
    assert is_allowed(measured, task, ON) and not is_allowed(measured, task, exact)
    tight, _ = default_candidate(task, forms, ON, max_error=1e-4)
    assert tight.implementation != CONVOLUTION.name, "the error that is allowed counts, too"


def test_ports_in_halves_are_for_those_that_take_them() -> None:
    task = conv(64, 64)
    data = (stored_in(blocked(16), HALF), PLAIN, blocked(16))
    result = (blocked(16), PLAIN, stored_in(blocked(16), HALF))
    direct = implementation("conv2d_direct")
    assert takes(CONVOLUTION, task, data) and takes(direct, task, result)
    assert not takes(direct, task, data), "it would widen what it broadcasts each time"
    with pytest.raises(InternalError, match="does not take form blocked16:bfloat16 at port 0"):
        knob_space(direct, task, ON.target, ON.resources, data)


def test_fewer_bytes_and_no_copy_take_less_time() -> None:
    task = conv(256, 64, kernel=1, extent=28)
    single_, halves = (
        (blocked(16), PLAIN, blocked(16)),
        (stored_in(blocked(16), HALF), PLAIN, blocked(16)),
    )
    assert saved_bytes(task, halves) == 2 * 256 * 28 * 28
    times = [default_candidate(task, forms, ON)[1] for forms in (single_, halves)]
    assert times[1] < 0.9 * times[0]


@pytest.mark.parametrize(
    "name",
    ["conv2d_winograd", "conv2d_winograd_bfloat16", "conv2d_bfloat16", "dense_bfloat16"],
)
def test_facts_of_many_are_those_of_each(name: str) -> None:
    spec = implementation(name)
    task = dense(8, 64, 48) if name.startswith("dense") else conv(64, 64, extent=28)
    form = stored_in(PLAIN if name.startswith("dense") else blocked(16), HALF)
    forms = (form, PLAIN, form)
    space = knob_space(spec, task, ON.target, ON.resources, forms)
    found = [space.settings(number) for number in [*space][:5]]
    each = facts(spec, task, ON.target, ON.resources, forms, found)["estimate_s"]
    many = facts_of_many(spec, [task] * len(found), ON.target, ON.resources, forms, found)
    np.testing.assert_allclose(many["estimate_s"], each)


def test_the_least_work_is_at_the_rate_of_dot_products() -> None:
    task = dense(8, 64, 48)
    exact, halves = least_work(task, ON.target), DENSE.least_work(task, ON.target)
    assert halves.speed == 2 * exact.speed and halves.flop == exact.flop
    assert exact.memory_bytes - halves.memory_bytes == 2 * 64 * 48
    convolved = conv(64, 48, extent=8)
    exact, halves = least_work(convolved, ON.target), WINOGRAD[0].least_work(convolved, ON.target)
    assert halves.speed == 2 * exact.speed
    assert halves.memory_bytes == 2 * 36 * 64 * 48


def test_what_no_kernel_takes_in_halves_is_left_in_single_precision() -> None:
    b = Builder()
    made = b.add("relu", b.input(4, 64))
    last = b.add("opaque", made, model="AA==", results=results_text((TensorType((4, 64)),)))
    network = fused(b, last)
    forms = in_halves(network, choose_forms(network, ON.target, ON.resources), ON)
    assert forms[made].dtype is None


def test_errors_of_long_sums_cancel_out() -> None:
    assert rounding_error(1) == rounding_error(30) == 2.0**-7
    assert rounding_error(3600) == pytest.approx(2.0**-7 / 10)


def test_transforms_amplify_errors_by_their_norms_most_at_the_border() -> None:
    bounds = [spec.error_bound(conv(64, 64)) for spec in WINOGRAD]
    direct = CONVOLUTION.error_bound(conv(64, 64))
    assert [bound / direct for bound in bounds] == pytest.approx([10.2, 2.0], rel=0.01)
    inside = [transform(m, 3, coarse=True).amplification() ** 2 for m in (4, 2)]
    assert inside == pytest.approx([7.13, 5 / 3], rel=0.01)
    assert transform(1, 1).amplification() == 1.0


@pytest.mark.parametrize(
    ("channels", "filters", "extent", "name"),
    [
        (64, 64, 56, "conv2d_winograd_bfloat16"),
        (128, 128, 28, "conv2d_winograd_bfloat16"),
        (256, 256, 14, "conv2d_winograd_bfloat16"),
        (512, 512, 7, "conv2d_winograd2_bfloat16"),
        (512, 512, 14, "conv2d_winograd_bfloat16"),
        (128, 32, 28, "conv2d_winograd_bfloat16"),
        (128, 32, 7, "conv2d_bfloat16"),
    ],
)
def test_estimates_rank_as_measured(channels: int, filters: int, extent: int, name: str) -> None:
    half = stored_in(blocked(16), HALF)
    task = conv(channels, filters, extent)
    assert default_candidate(task, (half, PLAIN, half), ON)[0].implementation == name
    fine, _ = default_candidate(task, (half, PLAIN, half), ON, max_error=5e-3)
    assert fine.implementation != "conv2d_winograd_bfloat16", "its bound is above"


def test_tensors_between_products_are_halves_and_the_ends_are_not() -> None:
    b = Builder()
    x = b.input(1, 3, 32, 32)
    first = b.conv(x, 32)
    second = b.conv(b.add("relu", first), 32)
    pooled = b.add("reduce_mean", second, axes=(2, 3), keepdims=False)
    last = b.add("softmax", pooled, axis=1)
    network = fused(b, last)
    forms = in_halves(network, choose_forms(network, ON.target, ON.resources), ON)
    stored = {tensor for tensor, form in forms.items() if form.dtype == HALF}
    assert forms[x].dtype is None and forms[last].dtype is None
    assert stored and stored <= {call.output for call in network.calls} - {last}
    convolved = [c.output for c in network.calls if c.workload.anchor_name == "conv2d"]
    assert convolved[0] in stored


def test_operands_of_batched_products_and_of_attention_are_halves() -> None:
    b = Builder()
    query = b.add("relu", b.input(1, 2, 64, 32))
    scores = b.add("batch_matmul", query, query, transpose_b=True)
    rows = b.add("relu", b.input(1, 64, 32))
    named = {"heads": 2, "key_heads": 2, "scale": 0.25, "causal": False, "fill": "-inf"}
    mixed = b.add("relu", b.add("attention", rows, rows, rows, **named))
    network = fused(b, b.add("softmax", scores, axis=3), b.add("softmax", mixed, axis=2))
    forms = in_halves(network, choose_forms(network, ON.target, ON.resources), ON)
    assert forms[query].dtype == forms[rows].dtype == HALF
    for name in (query, rows):
        reader = next(c for c in network.calls if name in c.inputs and c.workload.anchor_name)
        ports = tuple(forms.get(t, PLAIN) for t in (*reader.inputs, reader.output))
        found, _ = default_candidate(reader.workload, ports, ON)
        anchor = reader.workload.anchor_name
        assert found.implementation == f"{anchor}_bfloat16"


@pytest.mark.parametrize("transposed", [False, True])
def test_a_batched_product_takes_less_time_and_copies_what_is_no_half(transposed: bool) -> None:
    task = single("batch_matmul", (12, 128, 64), (12, *((128, 64) if transposed else (64, 128))),
                  transpose_b=transposed)  # fmt: skip
    half = stored_in(PLAIN, HALF)
    exact = default_candidate(task, (PLAIN,) * 3, replace(ON, precision="float32"))[1]
    times = [default_candidate(task, forms, ON)[1] for forms in ((PLAIN,) * 3, (half,) * 3)]
    assert times[1] < times[0] < exact
    spec = implementation("batch_matmul_bfloat16")
    assert spec.error_bound(task) == rounding_error(64)
    assert spec.least_work(task, ON.target).speed == 2 * least_work(task, ON.target).speed  # type: ignore[attr-defined]


def test_attention_keeps_words_of_two_halves() -> None:
    spec = implementation("attention_bfloat16")
    shape = (1, 21, 33)
    task = single("attention", shape, shape, shape, heads=3, key_heads=3, scale=0.25, causal=False,
                  fill="-inf")  # fmt: skip
    named = {"tile_rows": 7, "key_vectors": 1, "value_vectors": 1, "row_groups": 1}
    kept = spec.buffers(task, named, 16)  # type: ignore[attr-defined]
    assert kept["columns"] == TensorType((2, 6, 16), "uint32")
    assert kept["lines"] == TensorType((1, 11, 16), "uint32")
    assert kept["scaled"].shape == (7, 12) and kept["weights"].dtype == "uint16"
