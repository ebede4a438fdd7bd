"""Convolutions: what is known of one before it runs, padding and what follows from it included.

`conv2d` are forward ones on GPUs, timed; `energy` are their power and energy under a power meter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.cost.demand import Numbers
from tilewright.cost.floors import Peaks, Work, roofline_s
from tilewright.predict.base import Column, Columns, Family, Features, Floats, Target, features_of
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.regressors import Forest

FLOAT_BYTES = 4.0
_TILES = ((32, 32), (64, 64), (128, 32), (128, 64), (128, 128))


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
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
        return FLOAT_BYTES * self.batch * self.in_channels * self.size**2

    @property
    def out_bytes(self) -> Floats:
        """Output, fp32."""
        return FLOAT_BYTES * self.rows * self.out_channels

    @property
    def weight_bytes(self) -> Floats:
        """Weights, fp32."""
        return FLOAT_BYTES * self.out_channels * self.depth

    @property
    def moved_bytes(self) -> Floats:
        """Every operand once."""
        return self.in_bytes + self.out_bytes + self.weight_bytes

    @property
    def work(self) -> Work:
        """The least that it must do."""
        return Work(flop=self.flop, memory_bytes=self.moved_bytes)


def log2(value: Numbers) -> Floats:
    """The binary logarithm of what is above zero."""
    return np.log2(np.maximum(value, 1e-30))


def wasted(extent: Floats, tile: float) -> Floats:
    """Extent rounded up to whole tiles, over the extent: 1 where it divides."""
    return np.ceil(extent / tile) * tile / extent


def convolution_features(conv: Convolution, sheet: Datasheet) -> dict[str, Any]:
    """Features by name, as `docs/reference/evaluate.md` explains them."""
    padded = conv.size + conv.padding
    features: dict[str, Any] = {
        "batch": conv.batch,
        "in_channels": conv.in_channels,
        "out_channels": conv.out_channels,
        "size": conv.size,
        "out_size": conv.out_size,
        "kernel": conv.kernel,
        "stride": conv.stride,
        "dilation": np.where(conv.kernel > 1, (conv.reach - 1) / (conv.kernel - 1 + 1e-9), 1),
        "groups": log2(conv.groups),
        "padding": conv.padding,
        "padding_uneven": conv.padding % 2,
        "padded_in": log2(conv.batch * conv.in_channels * padded**2),
        "uneven_in": np.where(conv.padding % 2 > 0, log2(conv.in_bytes), 0),
        "rows": log2(conv.rows),
        "depth": log2(conv.depth),
        "flop": log2(conv.flop),
        "in_bytes": log2(conv.in_bytes),
        "out_bytes": log2(conv.out_bytes),
        "weight_bytes": log2(conv.weight_bytes),
        "intensity": log2(conv.flop / conv.moved_bytes),
        "unfolded": log2(conv.rows * conv.depth),
        "roofline": log2(roofline_s(conv.work, sheet.peaks)),
        "compute": log2(conv.work.computing_s(sheet.peaks)),
        "stride_1": conv.stride == 1,
        "winograd": (conv.kernel == 3) & (conv.stride == 1) & (conv.reach == 3),
        "pointwise": conv.kernel == 1,
        "covered": np.minimum(conv.kernel / conv.stride, 1),
        "fourier": 2.0 ** np.ceil(log2(padded)),
        "channels_product": log2(conv.in_channels * conv.out_channels),
        "batch_out": log2(conv.batch * conv.out_channels),
        "batch_in": log2(conv.batch * conv.in_channels),
    }
    features["transformed"] = log2(
        (conv.batch * (conv.in_channels + conv.out_channels) + conv.in_channels * conv.out_channels)
        * features["fourier"] ** 2
    )
    features |= _remainders(conv)
    for rows, columns in _TILES:
        tiles = np.ceil(conv.rows / rows) * np.ceil(conv.out_channels / columns)
        features[f"tiles_{rows}x{columns}"] = log2(tiles)
        features[f"padded_flop_{rows}x{columns}"] = log2(tiles * rows * columns * conv.depth)
    return features


def _remainders(conv: Convolution) -> dict[str, Any]:
    return {
        "waste_in_channels_32": wasted(conv.in_channels, 32),
        "waste_out_channels_32": wasted(conv.out_channels, 32),
        "waste_out_channels_64": wasted(conv.out_channels, 64),
        "waste_out_channels_128": wasted(conv.out_channels, 128),
        "waste_depth_8": wasted(conv.depth, 8),
        "in_channels_mod_4": conv.in_channels % 4,
        "out_channels_mod_4": conv.out_channels % 4,
        "size_mod_4": conv.size % 4,
        "out_size_mod_4": conv.out_size % 4,
        "in_channels_mod_32": conv.in_channels % 32,
        "out_channels_mod_32": conv.out_channels % 32,
    }


_ACTIVATIONS = ("none", "relu", "sigmoid", "tanh")


def _conv2d_features(columns: Columns, sheet: Datasheet) -> Features:
    size, kernel, stride = columns["height"], columns["kernel"], columns["stride"]
    same = columns["padding"] == "same"
    out_size = np.maximum(np.where(same, np.ceil(size / stride), (size - kernel) // stride + 1), 1)
    padding = np.where(same, np.maximum((out_size - 1) * stride + kernel - size, 0), 0)
    conv = Convolution(
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
    activation = np.array([_ACTIVATIONS.index(name) for name in columns["activation"]], dtype=float)
    passes = (activation > 0) + bias
    passed = Work(flop=0.0, memory_bytes=conv.moved_bytes + 2 * conv.out_bytes * passes)
    named = convolution_features(conv, sheet) | {
        "same": same,
        "bias": bias,
        "activation": activation,
        "passes": passes,
        "memory": log2(passed.moving_s(sheet.peaks)),
    }
    return features_of(named, roofline_s(conv.work, sheet.peaks))


CONV2D = Family(
    name="conv2d",
    operands=(
        Column(name="batch", meaning="images"),
        Column(name="in_channels", meaning="input channels"),
        Column(name="out_channels", meaning="output channels"),
        Column(name="height", meaning="height and width of the input"),
        Column(name="kernel", meaning="height and width of the kernel"),
        Column(name="stride", meaning="stride in both directions"),
        Column(
            name="padding",
            meaning="`same`: output extents are input extents over stride, rounded up; `valid`: "
            "no padding",
            text=True,
            choices=("same", "valid"),
        ),
        Column(name="use_bias", meaning="1 with a bias, 0 without", signed=True),
        Column(
            name="activation",
            meaning="what follows: `none`, `relu`, `sigmoid`, `tanh`",
            text=True,
            choices=_ACTIVATIONS,
        ),
    ),
    targets=(
        Target(column=Column(name="time_median_ms", meaning="median time", unit="ms"), si=1e-3),
    ),
    features=_conv2d_features,
)


_SMALL_GPU = Peaks(flop_per_s=3e11, bytes_per_s=1.5e10, cache_bytes_per_s=1.5e10)
_LAUNCH_S = 3e-4
"""A small GPU's peaks and launch; they shape the natural size of an energy and nothing else."""


def _energy_features(columns: Columns, _sheet: Datasheet) -> Features:
    kernel, dilation = columns["kh"], columns["dh"]
    conv = Convolution(
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


def _few_features(conv: Convolution) -> dict[str, Floats]:
    """A third of a convolution's features, sizes as logarithms: some hundreds of rows choose badly
    among more."""
    ins, outs = conv.in_channels, conv.out_channels
    return {
        "in_channels": log2(ins),
        "out_channels": log2(outs),
        "size": log2(conv.size),
        "out_size": log2(conv.out_size),
        "kernel": log2(conv.kernel),
        "stride": log2(conv.stride),
        "padding": conv.padding,
        "reach": conv.reach - conv.kernel,
        "groups": log2(conv.groups),
        "flop": log2(conv.flop),
        "in_bytes": log2(conv.in_bytes),
        "out_bytes": log2(conv.out_bytes),
        "weight_bytes": log2(conv.weight_bytes),
        "depth": log2(conv.depth),
        "intensity": log2(conv.flop / conv.moved_bytes),
        "channels_product": log2(ins * outs),
        "channels_ratio": log2(outs / ins),
        "least_channels": log2(np.minimum(ins, outs)),
        "most_channels": log2(np.maximum(ins, outs)),
        "group_in": log2(ins / conv.groups),
        "group_out": log2(outs / conv.groups),
    }


ENERGY = Family(
    name="energy",
    operands=(
        Column(name="n", meaning="images"),
        Column(name="c_in", meaning="input channels"),
        Column(name="h", meaning="height and width of the input"),
        Column(name="c_out", meaning="output channels"),
        Column(name="h_out", meaning="height and width of the output"),
        Column(name="kh", meaning="height and width of the kernel"),
        Column(name="sh", meaning="stride in both directions"),
        Column(name="ph", meaning="padding on each side", signed=True),
        Column(name="dh", meaning="dilation in both directions"),
        Column(name="groups", meaning="groups of channels"),
    ),
    targets=(
        Target(column=Column(name="total_energy_j", meaning="energy of one run", unit="J")),
        Target(column=Column(name="mean_power_w", meaning="mean power", unit="W"), scaled=False),
        Target(column=Column(name="latency_s", meaning="time", unit="s")),
    ),
    features=_energy_features,
    regressor=Forest(),
    roofed=False,
)
