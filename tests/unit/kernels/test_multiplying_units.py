"""The type in which a kernel multiplies, and the unit of a processor that does it."""

from __future__ import annotations

import pytest

from helpers.fakes.placements import altered
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload
from tilewright.hardware.features import units_of
from tilewright.kernels import compute_units
from tilewright.kernels.compute_units import multiplied_type, multiplying_unit, needed_features
from tilewright.testing.implementations import made_up_placement, single

FLOATS = single("conv2d", (1, 64, 14, 14), (64, 64, 3, 3), constants=(1,), strides=(1, 1),
                padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)  # fmt: skip
CODES = Workload(
    arguments=(
        Argument(type=TensorType((1, 64, 14, 14), "uint8")),
        Argument(type=TensorType((64, 64, 3, 3), "int8"), role="constant"),
    ),
    steps=FLOATS.steps,
)
DOTS = ("avx512bf16", "avx512vnni")
TILES = (*DOTS, "amx-tile", "amx-bf16", "amx-int8", "avx512fp16")


@pytest.mark.parametrize(
    ("name", "on_codes", "features", "dtype", "unit"),
    [
        ("conv2d_direct", False, TILES, "float32", "vector"),
        ("conv2d_bfloat16", False, DOTS, "bfloat16", "avx512bf16"),
        ("conv2d_bfloat16", False, TILES, "bfloat16", "avx512bf16"),
        ("conv2d_winograd_bfloat16", False, TILES, "bfloat16", "avx512bf16"),
        ("conv2d_amx", False, TILES, "bfloat16", "amx-bf16"),
        ("conv2d_float16", False, TILES, "float16", "avx512fp16"),
        ("dense_float16", False, DOTS, "float16", "vector"),
        ("dense_int8_weights", False, TILES, "int8-weights", "vector"),
        ("conv2d_int8", True, DOTS, "int8", "avx512vnni"),
        ("conv2d_int8", True, (), "int8", "vector"),
        ("conv2d_transposed_int8", True, DOTS, "int8", "avx512vnni"),
        ("conv2d_transposed_float16", False, TILES, "float16", "avx512fp16"),
        ("conv2d_winograd_int8", True, DOTS, "int8", "avx512vnni"),
        ("conv2d_amx_int8", True, TILES, "int8", "amx-int8"),
        ("conv2d_depthwise", True, DOTS, "int8", "vector"),
    ],
)
def test_what_multiplies(
    name: str, on_codes: bool, features: tuple[str, ...], dtype: str, unit: str
) -> None:
    target = altered(made_up_placement(64), features=features, units=units_of(features, 64)).target
    workload = CODES if on_codes else FLOATS
    assert multiplied_type(workload, name) == dtype
    assert multiplying_unit(workload, name, target) == unit


@pytest.mark.parametrize(
    ("names", "tiles"),
    [
        (["conv2d_direct", "conv2d_bfloat16", "conv2d_int8", "injective"], False),
        (["conv2d_direct", "conv2d_amx"], True),
        (["conv2d_amx_int8"], True),
        (["dense_amx"], True),
        (["dense_amx_int8"], True),
        (["batch_matmul_amx"], True),
        (["batch_matmul_amx_int8"], True),
        (["attention_amx"], True),
        ([], False),
    ],
)
def test_tile_registers_are_needed_where_a_kernel_uses_them(names: list[str], tiles: bool) -> None:
    target = altered(made_up_placement(64), features=TILES, units=units_of(TILES, 64)).target
    without = tuple(name for name in TILES if not name.startswith("amx-"))
    assert needed_features(names, target) == (TILES if tiles else without)


def test_of_a_kernel_of_another_package_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    target = altered(made_up_placement(64), features=TILES, units=units_of(TILES, 64)).target
    monkeypatch.setattr(compute_units, "is_ours", lambda _name: False)
    assert needed_features(["conv2d_direct"], target) == TILES
