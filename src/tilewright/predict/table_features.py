"""What is known of a row of a table before it runs, by families of operators.

Features are named as `docs/reference/evaluate.md` explains them, sizes mostly as logarithms. The
scale of a row is the roofline time by its device's datasheet where a family has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from tilewright.cost.demand import Numbers
from tilewright.cost.floors import Peaks, Work, roofline_s
from tilewright.predict.base import Columns, Datasheet, Features, Floats, features_of

_FLOAT_BYTES = 4.0
ACTIVATIONS = ("none", "relu", "sigmoid", "tanh")


def _log2(value: Numbers) -> Floats:
    """The binary logarithm of what is above zero."""
    return np.log2(np.maximum(value, 1e-30))


def _wasted(extent: Floats, tile: float) -> Floats:
    """Extent rounded up to whole tiles, over the extent: 1 where it divides."""
    return np.ceil(extent / tile) * tile / extent


_CONVOLUTION_TILES = ((32, 32), (64, 64), (128, 32), (128, 64), (128, 128))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolution:
    """Square two-dimensional convolutions, one array per extent; `padding` is the sum of both
    sides, `reach` the kernel with its dilation."""

    batch: Floats
    in_channels: Floats
    out_channels: Floats
    size: Floats
    out_size: Floats
    kernel: Floats
    reach: Floats
    stride: Floats
    padding: Floats
    groups: Floats

    @property
    def rows(self) -> Floats:
        """Output positions: the rows of the equivalent matrix product."""
        return self.batch * self.out_size**2

    @property
    def depth(self) -> Floats:
        """Products summed up for one output."""
        return self.in_channels / self.groups * self.kernel**2

    @property
    def flop(self) -> Floats:
        """Floating-point operations."""
        return 2 * self.rows * self.out_channels * self.depth

    @property
    def in_bytes(self) -> Floats:
        """Input, fp32."""
        return _FLOAT_BYTES * self.batch * self.in_channels * self.size**2

    @property
    def out_bytes(self) -> Floats:
        """Output, fp32."""
        return _FLOAT_BYTES * self.rows * self.out_channels

    @property
    def weight_bytes(self) -> Floats:
        """Weights, fp32."""
        return _FLOAT_BYTES * self.out_channels * self.depth

    @property
    def moved_bytes(self) -> Floats:
        """Every operand once."""
        return self.in_bytes + self.out_bytes + self.weight_bytes

    @property
    def work(self) -> Work:
        """The least that it must do."""
        return Work(flop=self.flop, memory_bytes=self.moved_bytes)


def _convolution_features(conv: _Convolution, sheet: Datasheet) -> dict[str, Any]:
    """Features by name."""
    padded, ins, outs = conv.size + conv.padding, conv.in_channels, conv.out_channels
    fourier = 2.0 ** np.ceil(_log2(padded))
    features: dict[str, Any] = {
        "batch": conv.batch,
        "in_channels": conv.in_channels,
        "out_channels": conv.out_channels,
        "size": conv.size,
        "out_size": conv.out_size,
        "kernel": conv.kernel,
        "stride": conv.stride,
        "dilation": np.where(conv.kernel > 1, (conv.reach - 1) / (conv.kernel - 1 + 1e-9), 1),
        "groups": _log2(conv.groups),
        "padding": conv.padding,
        "padding_uneven": conv.padding % 2,
        "padded_in": _log2(conv.batch * conv.in_channels * padded**2),
        "uneven_in": np.where(conv.padding % 2 > 0, _log2(conv.in_bytes), 0),
        "rows": _log2(conv.rows),
        "depth": _log2(conv.depth),
        "flop": _log2(conv.flop),
        "in_bytes": _log2(conv.in_bytes),
        "out_bytes": _log2(conv.out_bytes),
        "weight_bytes": _log2(conv.weight_bytes),
        "intensity": _log2(conv.flop / conv.moved_bytes),
        "unfolded": _log2(conv.rows * conv.depth),
        "roofline": _log2(roofline_s(conv.work, sheet.peaks)),
        "compute": _log2(conv.work.computing_s(sheet.peaks)),
        "stride_1": conv.stride == 1,
        "winograd": (conv.kernel == 3) & (conv.stride == 1) & (conv.reach == 3),
        "pointwise": conv.kernel == 1,
        "covered": np.minimum(conv.kernel / conv.stride, 1),
        "fourier": fourier,
        "channels_product": _log2(ins * outs),
        "batch_out": _log2(conv.batch * conv.out_channels),
        "batch_in": _log2(conv.batch * conv.in_channels),
        "transformed": _log2((conv.batch * (ins + outs) + ins * outs) * fourier**2),
        "waste_in_channels_32": _wasted(conv.in_channels, 32),
        "waste_out_channels_32": _wasted(conv.out_channels, 32),
        "waste_out_channels_64": _wasted(conv.out_channels, 64),
        "waste_out_channels_128": _wasted(conv.out_channels, 128),
        "waste_depth_8": _wasted(conv.depth, 8),
        "in_channels_mod_4": conv.in_channels % 4,
        "out_channels_mod_4": conv.out_channels % 4,
        "size_mod_4": conv.size % 4,
        "out_size_mod_4": conv.out_size % 4,
        "in_channels_mod_32": conv.in_channels % 32,
        "out_channels_mod_32": conv.out_channels % 32,
    }
    for rows, columns in _CONVOLUTION_TILES:
        tiles = np.ceil(conv.rows / rows) * np.ceil(conv.out_channels / columns)
        features[f"tiles_{rows}x{columns}"] = _log2(tiles)
        features[f"padded_flop_{rows}x{columns}"] = _log2(tiles * rows * columns * conv.depth)
    return features


def conv2d_features(columns: Columns, sheet: Datasheet) -> Features:
    """Of forward convolutions on GPUs, padding and what follows from it included."""
    size, kernel, stride = columns["height"], columns["kernel"], columns["stride"]
    same = columns["padding"] == "same"
    out_size = np.maximum(np.where(same, np.ceil(size / stride), (size - kernel) // stride + 1), 1)
    padding = np.where(same, np.maximum((out_size - 1) * stride + kernel - size, 0), 0)
    conv = _Convolution(
        batch=columns["batch"],
        in_channels=columns["in_channels"],
        out_channels=columns["out_channels"],
        size=size,
        out_size=out_size,
        kernel=kernel,
        reach=kernel,
        stride=stride,
        padding=padding,
        groups=np.ones_like(size),
    )
    bias = columns["use_bias"]
    activation = np.array([ACTIVATIONS.index(name) for name in columns["activation"]], dtype=float)
    passes = (activation > 0) + bias
    passed = Work(flop=0.0, memory_bytes=conv.moved_bytes + 2 * conv.out_bytes * passes)
    named = _convolution_features(conv, sheet) | {
        "same": same,
        "bias": bias,
        "activation": activation,
        "passes": passes,
        "memory": _log2(passed.moving_s(sheet.peaks)),
    }
    return features_of(named, roofline_s(conv.work, sheet.peaks))


_SMALL_GPU = Peaks(flop_per_s=3e11, bytes_per_s=1.5e10, cache_bytes_per_s=1.5e10)
_LAUNCH_S = 3e-4
"""A small GPU's peaks and launch; they shape the natural size of an energy and nothing else."""


def energy_features(columns: Columns, _sheet: Datasheet) -> Features:
    """Of convolutions under a power meter."""
    kernel, dilation = columns["kh"], columns["dh"]
    conv = _Convolution(
        batch=columns["n"],
        in_channels=columns["c_in"],
        out_channels=columns["c_out"],
        size=columns["h"],
        out_size=columns["h_out"],
        kernel=kernel,
        reach=(kernel - 1) * dilation + 1,
        stride=columns["sh"],
        padding=2 * columns["ph"],
        groups=columns["groups"],
    )
    return features_of(_few_features(conv), roofline_s(conv.work, _SMALL_GPU) + _LAUNCH_S)


def _few_features(conv: _Convolution) -> dict[str, Floats]:
    """A third of a convolution's features, sizes as logarithms: some hundreds of rows choose badly
    among more."""
    ins, outs = conv.in_channels, conv.out_channels
    return {
        "in_channels": _log2(ins),
        "out_channels": _log2(outs),
        "size": _log2(conv.size),
        "out_size": _log2(conv.out_size),
        "kernel": _log2(conv.kernel),
        "stride": _log2(conv.stride),
        "padding": conv.padding,
        "reach": conv.reach - conv.kernel,
        "groups": _log2(conv.groups),
        "flop": _log2(conv.flop),
        "in_bytes": _log2(conv.in_bytes),
        "out_bytes": _log2(conv.out_bytes),
        "weight_bytes": _log2(conv.weight_bytes),
        "depth": _log2(conv.depth),
        "intensity": _log2(conv.flop / conv.moved_bytes),
        "channels_product": _log2(ins * outs),
        "channels_ratio": _log2(outs / ins),
        "least_channels": _log2(np.minimum(ins, outs)),
        "most_channels": _log2(np.maximum(ins, outs)),
        "group_in": _log2(ins / conv.groups),
        "group_out": _log2(outs / conv.groups),
    }


PRODUCT_TILES = ((128, 128), (128, 64), (64, 64), (32, 128), (128, 32), (32, 32))


def product_features(columns: Columns, sheet: Datasheet, *, shared_weights: bool) -> Features:
    """Of matrix products; those of a batch have one right side in common, `shared_weights`, or one
    each."""
    b, m, n, k = (columns[name] for name in "bmnk")
    flop = 2 * b * m * n * k
    left = _FLOAT_BYTES * b * m * k
    right = _FLOAT_BYTES * n * k * (1 if shared_weights else b)
    moved = left + right + _FLOAT_BYTES * b * m * n
    work = Work(flop=flop, memory_bytes=moved)
    compute_s, memory_s = work.computing_s(sheet.peaks), work.moving_s(sheet.peaks)
    roof_s = roofline_s(work, sheet.peaks)
    named = {
        "b": _log2(b),
        "m": _log2(m),
        "n": _log2(n),
        "k": _log2(k),
        "compute": _log2(compute_s),
        "memory": _log2(memory_s),
        "roofline": _log2(roof_s),
        "balance": _log2(compute_s / memory_s),
        "of_cache": _log2(moved / sheet.l2_bytes),
        "left_of_cache": _log2(left / sheet.l2_bytes),
        "right_of_cache": _log2(right / sheet.l2_bytes),
        "outputs": _log2(b * m * n),
        "slenderness": _log2(k / np.sqrt(m * n)),
        "k_mod_4": k % 4,
        "n_mod_4": n % 4,
        "m_mod_4": m % 4,
        "k_mod_32": k % 32,
    }
    for rows, width in PRODUCT_TILES:
        tiles = b * np.ceil(m / rows) * np.ceil(n / width)
        waves = tiles / sheet.multiprocessors
        busy = np.ceil(waves) * sheet.multiprocessors * rows * width * 2 * k
        busy_s = Work(flop=busy, memory_bytes=0.0).computing_s(sheet.peaks)
        named |= {
            f"waves_{rows}x{width}": _log2(waves),
            f"tail_{rows}x{width}": np.ceil(waves) / waves,
            f"waste_{rows}x{width}": tiles * rows * width / (b * m * n),
            f"busy_{rows}x{width}": _log2(busy_s),
        }
    return features_of(named, roof_s)


_BYTES = {"float32": 4.0, "float": 4.0, "tf32": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0}
_MULTIPROCESSORS = 132
_RESULT_BYTES = 2.0


def power_features(columns: Columns, _sheet: Datasheet) -> Features:
    """Of matrix products whose mean power was measured, on one GPU."""
    m, n, k = (columns[name] for name in "mnk")
    element_bytes = np.array([_BYTES.get(name, 1.0) for name in columns["gemm_dtype"]])
    moved = element_bytes * (m * k + n * k) + _RESULT_BYTES * m * n
    tiles = np.ceil(m / 128) * np.ceil(n / 128)
    waves = tiles / _MULTIPROCESSORS
    named = {
        # A number per type that does not depend on which other types the table has.
        "type": np.array([float(crc32(name.encode()) % 2**20) for name in columns["gemm_dtype"]]),
        "m": _log2(m),
        "n": _log2(n),
        "k": _log2(k),
        "flop": _log2(m * n * k),
        "weights": _log2(n * k),
        "moved_bytes": _log2(moved),
        "intensity": _log2(m * n * k / moved),
        "rows": m,
        "m_power_of_2": _log2(m) % 1 == 0,
        "outputs": _log2(m * n),
        "tiles": _log2(tiles),
        "tail": np.ceil(waves) / waves,
        "waste_m": _wasted(m, 128),
        "narrow_tiles": _log2(np.ceil(m / 64) * np.ceil(n / 128)),
        "n_mod_128": n % 128,
        "k_mod_128": k % 128,
    }
    return features_of(named, np.ones(len(m)))


_WARPS = 4.0
_BLOCKS = 16.0
_REGISTERS_HOLD = 1024


def row_features(columns: Columns, sheet: Datasheet) -> Features:
    """Of operators that take one row after the other."""
    b, h = columns["b"], columns["h"]
    moved = 2 * _FLOAT_BYTES * b * h
    memory_s = roofline_s(Work(flop=0.0, memory_bytes=moved), sheet.peaks)
    waves = b / sheet.multiprocessors
    resident = sheet.multiprocessors * _WARPS * _BLOCKS
    named = {
        "b": _log2(b),
        "h": _log2(h),
        "memory": _log2(memory_s),
        "of_cache": _log2(moved / sheet.l2_bytes),
        "waves": _log2(waves),
        "tail": np.ceil(waves) / waves,
        "row_s": _log2(h * sheet.multiprocessors / sheet.bytes_per_s),
        "power_of_2": 2.0 ** np.ceil(_log2(h)) / h,
        "h_mod_4": h % 4,
        "large": h > _REGISTERS_HOLD,
        "waste_128": _wasted(h, 128),
        "waste_1024": _wasted(h, _REGISTERS_HOLD),
        "busy": _log2(np.ceil(b / resident) * resident * h * 2 * _FLOAT_BYTES / sheet.bytes_per_s),
    }
    return features_of(named, memory_s)


_WARP = 32
_SHARED_BYTES = 48 * 1024


def knob_features(columns: Columns, _sheet: Datasheet) -> Features:
    """Of one convolution kernel on GPUs, at a setting of its knobs."""
    block_x, block_y = columns["block_size_x"], columns["block_size_y"]
    tile_x, tile_y = columns["tile_size_x"], columns["tile_size_y"]
    threads = block_x * block_y
    wide, high = block_x * tile_x, block_y * tile_y
    halo_x, halo_y = columns["filter_width"] - 1, columns["filter_height"] - 1
    window = (wide + halo_x) * (high + halo_y)
    shared_bytes = _FLOAT_BYTES * window * columns["use_shmem"]
    named = {
        "block_x": _log2(block_x),
        "block_y": _log2(block_y),
        "tile_x": tile_x,
        "tile_y": tile_y,
        "read_only": columns["read_only"],
        "use_padding": columns["use_padding"],
        "use_shmem": columns["use_shmem"],
        "threads": _log2(threads),
        "outputs_per_thread": _log2(tile_x * tile_y),
        "wide": _log2(wide),
        "high": _log2(high),
        "outputs": _log2(wide * high),
        "halo": window / (wide * high),
        "shared_bytes": _log2(shared_bytes + 1),
        "shared_fits": shared_bytes <= _SHARED_BYTES,
        "partial_warp": threads % _WARP > 0,
        "waste_warp": _wasted(threads, _WARP),
        "whole_rows": block_x % _WARP == 0,
        "wide_mod_32": wide % _WARP,
        "tile_slant": tile_y - tile_x,
    }
    return features_of(named, np.full(len(threads), 1e-3))
