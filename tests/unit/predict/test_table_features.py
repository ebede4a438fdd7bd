"""What is known of rows of tables before they run, against numbers worked out by hand.

Sizes and times are given as they are and compared as the binary logarithms that features are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.predict.base import Columns, Datasheet, Features
from tilewright.predict.table_features import (
    conv2d_features,
    energy_features,
    knob_features,
    power_features,
    product_features,
    row_features,
)

SHEET = Datasheet(
    device="gpu",
    bytes_per_s=1e11,
    flop_per_s=1e12,
    multiprocessors=3,
    l2_bytes=4096,
)


def columns(**named: Sequence[Any]) -> Columns:
    """Columns of text or numbers, one value per row."""
    text = {name: isinstance(values[0], str) for name, values in named.items()}
    return {
        name: np.array(values, dtype=object if text[name] else np.float64)
        for name, values in named.items()
    }


def features_of_row(found: Features, row: int = 0) -> dict[str, float]:
    """The features of one row by name."""
    return dict(zip(found.names, found.values[row].tolist(), strict=True))


def check(found: Mapping[str, float], sizes: Mapping[str, float], others: Mapping[str, float]):
    """Assert that these are all features: `sizes` as binary logarithms, `others` as they are."""
    wanted = {name: float(np.log2(size)) for name, size in sizes.items()} | dict(others)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_a_convolution_that_keeps_its_extent() -> None:
    """Two images of 3 × 7 × 7, sixteen filters of 3 × 3 in steps of two, a bias and a relu: results
    are 4 × 4, and two rows and columns are padded."""
    row = columns(
        batch=[2], in_channels=[3], out_channels=[16], height=[7], kernel=[3], stride=[2],
        padding=["same"], use_bias=[1], activation=["relu"],
    )  # fmt: skip
    found = conv2d_features(row, SHEET)
    sizes = {
        "groups": 1,
        "padded_in": 2 * 3 * 9 * 9,
        "rows": 2 * 4 * 4,
        "depth": 3 * 3 * 3,
        "flop": 2 * 32 * 27 * 16,
        "in_bytes": 4 * 2 * 3 * 7 * 7,
        "out_bytes": 4 * 32 * 16,
        "weight_bytes": 4 * 27 * 16,
        "intensity": 27648 / (1176 + 2048 + 1728),
        "unfolded": 32 * 27,
        "compute": 27648 / 1e12,
        "roofline": 4952 / 1e11,
        "channels_product": 3 * 16,
        "batch_out": 2 * 16,
        "batch_in": 2 * 3,
        "transformed": (2 * (3 + 16) + 3 * 16) * 16 * 16,
        "memory": (4952 + 2 * 2 * 2048) / 1e11,
        **{f"tiles_{tile}": 1 for tile in ("32x32", "64x64", "128x32", "128x64", "128x128")},
        "padded_flop_32x32": 32 * 32 * 27,
        "padded_flop_64x64": 64 * 64 * 27,
        "padded_flop_128x32": 128 * 32 * 27,
        "padded_flop_128x64": 128 * 64 * 27,
        "padded_flop_128x128": 128 * 128 * 27,
    }
    others = {
        "batch": 2, "in_channels": 3, "out_channels": 16, "size": 7, "out_size": 4, "kernel": 3,
        "stride": 2, "dilation": 1, "padding": 2, "padding_uneven": 0, "uneven_in": 0,
        "stride_1": 0, "winograd": 0, "pointwise": 0, "covered": 1, "fourier": 16,
        "waste_in_channels_32": 32 / 3, "waste_out_channels_32": 2, "waste_out_channels_64": 4,
        "waste_out_channels_128": 8, "waste_depth_8": 32 / 27,
        "in_channels_mod_4": 3, "out_channels_mod_4": 0, "size_mod_4": 3, "out_size_mod_4": 0,
        "in_channels_mod_32": 3, "out_channels_mod_32": 16,
        "same": 1, "bias": 1, "activation": 1, "passes": 2,
    }  # fmt: skip
    check(features_of_row(found), sizes, others)
    assert found.scale == pytest.approx([4952e-11]), "moving bytes takes longer than computing"


def test_convolutions_of_other_shapes() -> None:
    """A pointwise one in steps of two without padding, an even kernel with one row more of padding
    below than above, one for Winograd's algorithm, and one of many tiles."""
    rows = columns(
        batch=[1, 1, 1, 8],
        in_channels=[36, 5, 8, 64],
        out_channels=[6, 5, 8, 200],
        height=[8, 8, 8, 33],
        kernel=[1, 4, 3, 3],
        stride=[2, 1, 1, 2],
        padding=["valid", "same", "same", "valid"],
        use_bias=[0, 0, 1, 0],
        activation=["none", "tanh", "none", "sigmoid"],
    )
    found = conv2d_features(rows, SHEET)
    pointwise, even, winograd, tiled = (features_of_row(found, row) for row in range(4))
    assert (pointwise["pointwise"], pointwise["covered"], pointwise["dilation"]) == (1, 0.5, 1)
    assert (pointwise["out_size"], pointwise["padding"]) == (4, 0)
    assert (pointwise["in_channels_mod_32"], pointwise["out_channels_mod_4"]) == (4, 2)
    assert (pointwise["passes"], pointwise["same"]) == (0, 0)
    assert (even["out_size"], even["padding"], even["padding_uneven"]) == (8, 3, 1)
    assert even["uneven_in"] == pytest.approx(np.log2(4 * 5 * 64)), "it may be copied"
    assert (even["activation"], even["passes"], even["winograd"]) == (3, 1, 0)
    assert (winograd["winograd"], winograd["stride_1"], winograd["passes"]) == (1, 1, 1)
    assert tiled["out_size"] == 16 and tiled["activation"] == 2
    assert (tiled["in_channels_mod_4"], tiled["out_channels_mod_32"]) == (0, 8)
    tiles = {"32x32": 64 * 7, "64x64": 32 * 4, "128x32": 16 * 7, "128x64": 16 * 4, "128x128": 32}
    for shape, count in tiles.items():
        assert tiled[f"tiles_{shape}"] == pytest.approx(np.log2(count)), shape
    assert tiled["padded_flop_128x64"] == pytest.approx(np.log2(64 * 128 * 64 * 64 * 9))
    computing_s = 2 * 8 * 256 * 200 * 576 / 1e12
    assert found.scale[3] == pytest.approx(computing_s), "computing takes longer than moving"


def test_a_kernel_that_is_larger_than_its_input_has_one_output() -> None:
    row = columns(
        batch=[1], in_channels=[4], out_channels=[4], height=[3], kernel=[5], stride=[1],
        padding=["valid"], use_bias=[0], activation=["none"],
    )  # fmt: skip
    assert features_of_row(conv2d_features(row, SHEET))["out_size"] == 1


def test_a_grouped_convolution_under_a_power_meter() -> None:
    """Two images of 8 × 6 × 6, sixteen dilated filters of 3 × 3 in four groups, two rows of padding
    on each side: each output sums up 2 × 9 products."""
    row = columns(
        n=[2], c_in=[8], h=[6], c_out=[16], h_out=[6], kh=[3], sh=[1], ph=[2], dh=[2], groups=[4]
    )
    found = energy_features(row, SHEET)
    sizes = {
        "in_channels": 8, "out_channels": 16, "size": 6, "out_size": 6, "kernel": 3, "stride": 1,
        "groups": 4, "depth": 18, "flop": 2 * 72 * 18 * 16,
        "in_bytes": 4 * 2 * 8 * 36, "out_bytes": 4 * 72 * 16, "weight_bytes": 4 * 18 * 16,
        "intensity": 41472 / (2304 + 4608 + 1152), "channels_product": 128, "channels_ratio": 2,
        "least_channels": 8, "most_channels": 16, "group_in": 2, "group_out": 4,
    }  # fmt: skip
    check(features_of_row(found), sizes, {"padding": 4, "reach": 2})
    assert found.scale == pytest.approx([8064 / 1.5e10 + 3e-4], rel=1e-9), "a launch and its bytes"


@pytest.mark.parametrize(("shared", "right_bytes"), [(True, 8840), (False, 17680)])
def test_products_of_a_batch_share_their_weights_or_do_not(shared: bool, right_bytes: int) -> None:
    """Two products of 130 × 34 by 34 × 65 on three multiprocessors, in tiles of six shapes."""
    found = product_features(columns(b=[2], m=[130], n=[65], k=[34]), SHEET, shared_weights=shared)
    flop, left_bytes, moved = 2 * 2 * 130 * 65 * 34, 35360, 35360 + right_bytes + 67600
    roof_s = moved / 1e11 if right_bytes == 17680 else flop / 1e12
    sizes = {
        "b": 2, "m": 130, "n": 65, "k": 34, "outputs": 2 * 130 * 65,
        "compute": flop / 1e12, "memory": moved / 1e11, "roofline": roof_s,
        "balance": flop / moved / 10, "of_cache": moved / 4096, "left_of_cache": left_bytes / 4096,
        "right_of_cache": right_bytes / 4096, "slenderness": 34 / np.sqrt(130 * 65),
    }  # fmt: skip
    others: dict[str, float] = {"k_mod_4": 2, "n_mod_4": 1, "m_mod_4": 2, "k_mod_32": 2}
    tiles = {
        (128, 128): 4, (128, 64): 8, (64, 64): 12, (32, 128): 10, (128, 32): 12, (32, 32): 30,
    }  # fmt: skip
    for (rows, width), count in tiles.items():
        shape, full_waves = f"{rows}x{width}", -(-count // 3)
        sizes[f"waves_{shape}"] = count / 3
        others[f"tail_{shape}"] = full_waves / (count / 3)
        others[f"waste_{shape}"] = count * rows * width / 16900
        sizes[f"busy_{shape}"] = full_waves * 3 * rows * width * 2 * 34 / 1e12
    check(features_of_row(found), sizes, others)
    assert found.scale == pytest.approx([roof_s])


def test_the_power_of_a_product() -> None:
    """200 × 64 by 64 × 300 in two bytes an element: six tiles of 128 × 128, on 132
    multiprocessors."""
    rows = columns(
        gemm_dtype=["bfloat16", "fp8", "half"],
        m=[200, 256, 129],
        n=[300, 384, 257],
        k=[64, 192, 192],
    )
    found = power_features(rows, SHEET)
    first, second, ragged = (features_of_row(found, row) for row in range(3))
    moved = 2 * (200 * 64 + 300 * 64) + 2 * 200 * 300
    sizes = {
        "m": 200, "n": 300, "k": 64, "flop": 200 * 300 * 64, "weights": 300 * 64,
        "moved_bytes": moved, "intensity": 200 * 300 * 64 / moved, "outputs": 200 * 300,
        "tiles": 6, "narrow_tiles": 4 * 3,
    }  # fmt: skip
    others = {
        "type": first["type"], "rows": 200, "m_power_of_2": 0, "tail": 132 / 6, "waste_m": 1.28,
        "n_mod_128": 44, "k_mod_128": 64,
    }  # fmt: skip
    check(first, sizes, others)
    moved = 256 * 192 + 384 * 192 + 2 * 256 * 384
    assert second["moved_bytes"] == pytest.approx(np.log2(moved)), "other types are of one byte"
    assert (second["m_power_of_2"], second["waste_m"], second["n_mod_128"]) == (1, 1, 0)
    assert ragged["tiles"] == pytest.approx(np.log2(2 * 3)) and ragged["k_mod_128"] == 64
    assert ragged["narrow_tiles"] == pytest.approx(np.log2(3 * 3))
    assert (found.scale == 1).all(), "power is of one size"


def test_the_number_of_a_type_does_not_depend_on_the_others() -> None:
    def numbers(*names: str) -> list[float]:
        rows = columns(gemm_dtype=names, m=[8] * len(names), n=[8] * len(names), k=[8] * len(names))
        found = power_features(rows, SHEET)
        return found.values[:, found.names.index("type")].tolist()

    bfloat16, half, single = numbers("bfloat16", "float16", "float32")
    assert numbers("float32") == [single]
    assert numbers("float16", "bfloat16") == [half, bfloat16]
    assert len({bfloat16, half, single}) == 3


def test_rows_one_after_the_other() -> None:
    """Ten rows of a thousand elements on three multiprocessors, each of which holds 64."""
    found = row_features(columns(b=[10, 400], h=[1000, 1026]), SHEET)
    sizes = {
        "b": 10, "h": 1000, "memory": 80000 / 1e11, "of_cache": 80000 / 4096, "waves": 10 / 3,
        "row_s": 1000 * 3 / 1e11, "busy": 192 * 1000 * 2 * 4 / 1e11,
    }  # fmt: skip
    others = {
        "tail": 1.2, "power_of_2": 1.024, "h_mod_4": 0, "large": 0, "waste_128": 1.024,
        "waste_1024": 1.024,
    }  # fmt: skip
    check(features_of_row(found), sizes, others)
    long = features_of_row(found, 1)
    assert (long["large"], long["h_mod_4"]) == (1, 2)
    assert long["waste_1024"] == pytest.approx(2048 / 1026)
    assert long["busy"] == pytest.approx(np.log2(3 * 192 * 1026 * 8 / 1e11)), "400 rows take turns"
    assert found.scale == pytest.approx([80000 / 1e11, 8 * 400 * 1026 / 1e11])


def test_knobs_of_a_convolution_kernel() -> None:
    """Blocks of 24 × 2 threads with 2 × 3 outputs each, a filter of 3 × 5: 48 × 6 outputs read a
    window of 50 × 10."""
    setting = {
        "block_size_x": 24, "block_size_y": 2, "tile_size_x": 2, "tile_size_y": 3, "read_only": 1,
        "use_padding": 0, "use_shmem": 1, "filter_width": 3, "filter_height": 5,
    }  # fmt: skip
    large = {**setting, "block_size_x": 64, "block_size_y": 32}
    direct = {**large, "use_shmem": 0}
    named = {name: [each[name] for each in (setting, large, direct)] for name in setting}
    found = knob_features(columns(**named), SHEET)
    sizes = {
        "block_x": 24, "block_y": 2, "threads": 48, "outputs_per_thread": 6, "wide": 48, "high": 6,
        "outputs": 48 * 6, "shared_bytes": 4 * 50 * 10 + 1,
    }  # fmt: skip
    others = {
        "tile_x": 2, "tile_y": 3, "read_only": 1, "use_padding": 0, "use_shmem": 1,
        "halo": 500 / 288, "shared_fits": 1, "partial_warp": 1, "waste_warp": 64 / 48,
        "whole_rows": 0, "wide_mod_32": 16, "tile_slant": 1,
    }  # fmt: skip
    check(features_of_row(found), sizes, others)
    full, unshared = features_of_row(found, 1), features_of_row(found, 2)
    assert (full["shared_fits"], full["partial_warp"], full["whole_rows"]) == (0, 0, 1)
    assert full["shared_bytes"] == pytest.approx(np.log2(4 * 130 * 100 + 1)), "more than 48 KiB"
    assert (unshared["shared_bytes"], unshared["shared_fits"]) == (0, 1)
    assert len(set(found.scale)) == 1, "times of one kernel are of one size"
