"""`knobs`: one GPU convolution kernel at every setting of its knobs, timed."""

from __future__ import annotations

import numpy as np

from tilewright.predict.base import Column, Columns, Family, Features, Target, features_of
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.families.convolution import FLOAT_BYTES, log2, wasted
from tilewright.predict.regressors import Trees

_WARP = 32
_SHARED_BYTES = 48 * 1024


def _features(columns: Columns, _sheet: Datasheet) -> Features:
    block_x, block_y = columns["block_size_x"], columns["block_size_y"]
    tile_x, tile_y = columns["tile_size_x"], columns["tile_size_y"]
    threads = block_x * block_y
    wide, high = block_x * tile_x, block_y * tile_y
    halo_x, halo_y = columns["filter_width"] - 1, columns["filter_height"] - 1
    window = (wide + halo_x) * (high + halo_y)
    shared_bytes = FLOAT_BYTES * window * columns["use_shmem"]
    named = {
        "block_x": log2(block_x),
        "block_y": log2(block_y),
        "tile_x": tile_x,
        "tile_y": tile_y,
        "read_only": columns["read_only"],
        "use_padding": columns["use_padding"],
        "use_shmem": columns["use_shmem"],
        "threads": log2(threads),
        "outputs_per_thread": log2(tile_x * tile_y),
        "wide": log2(wide),
        "high": log2(high),
        "outputs": log2(wide * high),
        "halo": window / (wide * high),
        "shared_bytes": log2(shared_bytes + 1),
        "shared_fits": shared_bytes <= _SHARED_BYTES,
        "partial_warp": threads % _WARP > 0,
        "waste_warp": wasted(threads, _WARP),
        "whole_rows": block_x % _WARP == 0,
        "wide_mod_32": wide % _WARP,
        "tile_slant": tile_y - tile_x,
    }
    return features_of(named, np.full(len(threads), 1e-3))


def _size(name: str, meaning: str) -> Column:
    return Column(name=name, meaning=meaning)


def _switch(name: str, meaning: str) -> Column:
    return Column(name=name, meaning=f"1 {meaning}, 0 not", signed=True)


KNOBS = Family(
    name="knobs",
    operands=(
        _size("block_size_x", "threads of a block along x"),
        _size("block_size_y", "threads of a block along y"),
        _size("tile_size_x", "outputs of a thread along x"),
        _size("tile_size_y", "outputs of a thread along y"),
        _switch("read_only", "reads through the read-only cache"),
        _switch("use_padding", "pads rows in shared memory"),
        _switch("use_shmem", "stages the input in shared memory"),
        _size("filter_height", "height of the filter"),
        _size("filter_width", "width of the filter"),
    ),
    targets=(
        Target(
            column=Column(name="time_ms", meaning="time; empty where a setting failed", unit="ms"),
            si=1e-3,
        ),
    ),
    features=_features,
    regressor=Trees(rounds=500, rate=0.06, depth=6, least_weight=1, column_share=0.7),
    roofed=False,
    verified=20,
)
