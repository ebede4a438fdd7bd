"""The integer convolution's spec and its built-in case, without a compiler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered
from helpers.kernels.spec_checks import best, blocks_of, check_space
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Placement
from tilewright.cost.demand import seconds
from tilewright.graph.evaluate import magnitude, run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload, parse_workload
from tilewright.hardware.features import units_of
from tilewright.kernels.codes import dot_lanes
from tilewright.kernels.conv2d_int8 import SPEC
from tilewright.kernels.convolution import convolution
from tilewright.kernels.int8_case import int8_case, int8_forms
from tilewright.kernels.registry import applicable
from tilewright.measure.checking import relative_error, sample_arguments
from tilewright.measure.targeting import placement_of
from tilewright.testing.implementations import PLACEMENTS, candidate_of, made_up_placement, single


def with_dots(on: Placement, *features: str) -> Placement:
    features = features or ("avx512vnni",)
    return altered(on, features=features, units=units_of(features, on.target.vector_bytes))


WITH_DOTS = with_dots(made_up_placement())
ARM = {
    name: with_dots(made_up_placement(16), *features)
    for name, features in (
        ("dotprod", ("dotprod",)),
        ("i8mm", ("i8mm",)),
        ("both", ("dotprod", "i8mm")),
    )
}


def conv(
    data: tuple[int, int, int, int],
    filters: int,
    kernel: int = 3,
    groups: int = 1,
    dtype: str = "uint8",
) -> Workload:
    weight = (filters, data[1] // groups, kernel, kernel)
    floats = single(
        "conv2d", data, weight, constants=(1,), strides=(1, 1), padding=(kernel // 2,) * 4,
        dilation=(1, 1), groups=groups,
    )  # fmt: skip
    arguments = (
        Argument(type=TensorType(data, dtype)),
        Argument(type=TensorType(weight, "int8"), role="constant"),
    )
    return Workload(arguments=arguments, steps=floats.steps)


@settings(max_examples=40, deadline=None)
@given(
    channels=st.sampled_from([3, 4, 6, 16, 20, 48]),
    filters=st.sampled_from([2, 7, 8, 10, 16, 24, 64]),
    extent=st.sampled_from([1, 7, 17, 73]),
    kernel=st.sampled_from([1, 3]),
    dtype=st.sampled_from(["int8", "uint8"]),
    on=st.sampled_from([*PLACEMENTS, *(with_dots(on) for on in PLACEMENTS), *ARM.values()]),
    data_block=st.sampled_from([0, 4, 16]),
    result=st.booleans(),
)
def test_every_shape_has_settings_and_weights_in_their_places(
    channels, filters, extent, kernel, dtype, on, data_block, result
):
    task = conv((1, channels, extent, extent), filters, kernel, dtype=dtype)
    data = blocked(data_block) if data_block and channels % data_block == 0 else PLAIN
    block = blocks_of(SPEC, task, on)[0]
    forms = (data, PLAIN, blocked(block) if result and block else PLAIN)
    found, facts = check_space(SPEC, task, on, forms)
    chosen = candidate_of(SPEC, best(found, facts), forms)
    weights = sample_arguments(task, 0)[1]
    packed = SPEC.pack(task, chosen, {1: weights})[1]
    assert packed.shape == SPEC.packed_shapes(task, chosen)[1]
    assert packed.dtype == np.int8 and packed.flags["C_CONTIGUOUS"]
    dot = dict(chosen.settings)["dot"]
    taken = {"vnni": "uint8", "usdot": "uint8", "sdot": "int8"}.get(dot, dtype)
    extra = 128 * ((taken == "uint8") - (dtype == "uint8"))
    kept = packed[:, :-1] if extra else packed
    np.testing.assert_array_equal(np.sort(kept[kept != 0]), np.sort(weights[weights != 0]))
    if extra:
        planes = packed[:, -1].reshape(packed.shape[0], 4, -1).swapaxes(1, 2)
        sums = np.ascontiguousarray(planes).view("<i4").reshape(-1)
        np.testing.assert_array_equal(sums, -extra * weights.sum(axis=(1, 2, 3), dtype=np.int32))


def test_dot_products_need_the_instruction_and_their_lanes() -> None:
    def dot(task: Workload, on: Placement, forms: tuple[Form, ...]) -> object:
        found, _ = check_space(SPEC, task, on, forms)
        return found[0]["dot"]

    sixteen = (blocked(16), PLAIN, blocked(16))
    task = conv((1, 16, 7, 7), 32)
    assert dot(task, WITH_DOTS, sixteen) == "vnni"
    assert dot(task, made_up_placement(), sixteen) == "widen"
    assert dot(conv((1, 16, 7, 7), 10), WITH_DOTS, (PLAIN,) * 3) == "widen"
    assert dot(conv((1, 12, 7, 7), 32, groups=2), WITH_DOTS, (PLAIN,) * 3) == "widen"
    assert dot(conv((1, 3, 7, 7), 32), WITH_DOTS, (PLAIN,) * 3) == "vnni"


@pytest.mark.parametrize(
    ("features", "dtype", "instruction"),
    [
        ("dotprod", "int8", "sdot"),
        ("dotprod", "uint8", "sdot"),
        ("i8mm", "int8", "usdot"),
        ("i8mm", "uint8", "usdot"),
        ("both", "int8", "sdot"),
        ("both", "uint8", "usdot"),
    ],
)
@pytest.mark.parametrize("block", [4, 8, 16])
def test_arm_multiplies_what_data_is_if_it_can(
    features: str, dtype: str, instruction: str, block: int
) -> None:
    """Several registers of four lanes are one dot product of a block."""
    task, forms = conv((1, 16, 7, 7), 32, dtype=dtype), (blocked(16), PLAIN, blocked(block))
    found, _ = check_space(SPEC, task, ARM[features], forms)
    assert {(s["dot"], s["lanes"]) for s in found} == {(instruction, block)}


def test_arm_of_32_bits_has_no_dot_products() -> None:
    assert dot_lanes(ARM["both"].target) == (16, 8, 4)
    assert dot_lanes(altered(ARM["both"], architecture="armv8l").target) == ()


@given(
    vector_bytes=st.sampled_from([16, 32, 64]),
    features=st.sets(st.sampled_from(["avx512vnni", "avxvnni", "amx-int8"])),
)
def test_dot_products_of_x86_are_as_wide_as_their_registers(vector_bytes, features) -> None:
    on = made_up_placement(vector_bytes)
    target = altered(on, units=units_of(tuple(features), vector_bytes)).target
    wide = "avx512vnni" in features
    expected = [
        lanes
        for lanes in (16, 8, 4)
        if 4 * lanes <= vector_bytes and (wide or ("avxvnni" in features and lanes < 16))
    ]
    assert list(dot_lanes(target)) == expected


def test_what_it_does_not_take() -> None:
    assert SPEC.applies(conv((1, 8, 5, 5), 8), PLACEMENTS[0].target, PLACEMENTS[0].resources)
    assert not SPEC.applies(
        conv((1, 8, 5, 5), 8, groups=8), PLACEMENTS[0].target, PLACEMENTS[0].resources
    )
    floats = single("conv2d", (1, 4, 5, 5), (4, 4, 1, 1), constants=(1,),
                    strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1)  # fmt: skip
    assert not SPEC.applies(floats, PLACEMENTS[0].target, PLACEMENTS[0].resources)


@pytest.mark.parametrize("kernel", [1, 3])
def test_the_case_is_the_same_sums_with_a_quarter_of_the_result(kernel: int) -> None:
    bare, fused = int8_case(kernel)
    assert bare.result.dtype == "int32" and fused.result.dtype == "int8"
    assert bare.result.shape == fused.result.shape
    assert bare.result.bytes == 4 * fused.result.bytes
    assert bare.steps[0] == fused.steps[0]
    assert all(parse_workload(task.text) == task for task in (bare, fused))
    for task in (bare, fused):
        assert SPEC in applicable(task, WITH_DOTS.target, WITH_DOTS.resources)
        assert {name for name in int8_forms(task, WITH_DOTS.target) if name != PLAIN} == {
            blocked(16)
        }
        check_space(SPEC, task, WITH_DOTS, int8_forms(task, WITH_DOTS.target))


def test_checks_see_one_quantum_and_samples_do_not_saturate() -> None:
    for task in int8_case(1):
        arrays = sample_arguments(task, 0)
        wanted = run_workload(task, arrays)
        wrong = wanted.copy()
        wrong.flat[7] += 1 if wanted.flat[7] < 100 else -1
        scale = magnitude(task, arrays)
        assert relative_error(wanted, wanted, scale) == 0
        assert relative_error(wrong, wanted, scale) > SPEC.error_bound(task)
        limits = np.iinfo(wanted.dtype)
        assert np.mean((wanted == limits.min) | (wanted == limits.max)) < 0.2
        assert wanted.std() > 20


@pytest.mark.parametrize(
    ("task", "data", "vector"),
    [
        (conv((1, 3, 9, 48), 16, dtype="int8"), PLAIN, 16),
        (conv((1, 4, 9, 24), 16), PLAIN, 8),
        (conv((1, 4, 9, 24), 16), blocked(4), 0),
        (conv((1, 3, 9, 49), 16), PLAIN, 0),
        (conv((1, 5, 9, 48), 16), PLAIN, 0),
        (conv((1, 4, 9, 48), 16, groups=2), PLAIN, 0),
    ],
)
def test_which_data_is_copied_as_words(task: Workload, data: Form, vector: int) -> None:
    forms = (data, PLAIN, PLAIN)
    named = {"lanes": 16, "dot": "vnni"}
    assert SPEC.pixels_at_once(convolution(task), forms, named) == vector
    for other in ("sdot", "usdot", "widen"):
        assert SPEC.pixels_at_once(convolution(task), forms, {**named, "dot": other}) == 0


def test_tiles_of_the_first_layer_are_whole() -> None:
    """With a tile that is cut off at the end of a row it took 1.25 times as long."""
    task = conv((1, 3, 112, 112), 64, kernel=7, dtype="int8")
    found, facts = check_space(SPEC, task, WITH_DOTS, (PLAIN, PLAIN, blocked(16)))
    chosen = best(found, facts)
    assert 112 % int(chosen["tile_width"]) == 0 and 112 % int(chosen["tile_height"]) == 0


@pytest.mark.parametrize(
    ("task", "sums"),
    [
        (conv((1, 64, 1, 3136), 256, kernel=1), 8),
        (conv((1, 128, 1, 784), 512, kernel=1), 8),
        (conv((1, 512, 7, 7), 512), 14),
        (conv((1, 2048, 1, 49), 512, kernel=1), 14),
    ],
)
def test_where_one_dot_product_begins_in_a_cycle_tiles_are_small_and_whole(
    task: Workload, sums: int
) -> None:
    """Measured on a Zen 4: tiles that are cut off take up to 1.4 times as long, and results of
    small ones are beside the next dot products. A Xeon begins two, and keeps the tiles it had."""
    forms = (blocked(16), PLAIN, blocked(16))
    tiles = {}
    for cpu in ("znver4", "icelake-server"):
        chosen = best(*check_space(SPEC, task, placement_of(f"llvm -mcpu={cpu}", None, 2), forms))
        high, wide, out = (int(chosen[f"tile_{name}"]) for name in ("height", "width", "out"))
        tiles[cpu] = high * wide * out
        if cpu == "znver4":
            shape = task.result.shape
            assert shape[2] % high == 0 and shape[3] % wide == 0
    assert tiles["znver4"] == sums < tiles["icelake-server"]


@pytest.mark.parametrize(
    ("task", "same"),
    [(conv((1, 12, 7, 7), 32, groups=2), True), (conv((1, 32, 7, 7), 32, groups=2), False)],
)
def test_only_dot_products_are_estimated_as_those_of_a_zen_4(task: Workload, same: bool) -> None:
    """Bytes that are widened before they are multiplied are estimated as on other processors."""
    times = []
    for cpu in ("znver4", "znver5"):
        on = placement_of(f"llvm -mcpu={cpu}", None, 2)
        found = check_space(SPEC, task, on, (PLAIN,) * 3)[0]
        args = (task, on.target, on.resources, (PLAIN,) * 3, found)
        times.append(seconds(SPEC.demand(*args), on.resources))
    assert np.array_equal(*times) == same
