"""What is known of a convolution before it runs, padding and what follows from it included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.cost.demand import Numbers
from tilewright.cost.floors import Work, roofline_s
from tilewright.predict.base import Floats
from tilewright.predict.datasheets import Datasheet

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
    features: dict[str, Any] = {
        "waste_in_channels_32": wasted(conv.in_channels, 32),
        "waste_out_channels_32": wasted(conv.out_channels, 32),
    }
    features["waste_out_channels_64"] = wasted(conv.out_channels, 64)
    features["waste_out_channels_128"] = wasted(conv.out_channels, 128)
    features["waste_depth_8"] = wasted(conv.depth, 8)
    for name, extent in (
        ("in_channels", conv.in_channels),
        ("out_channels", conv.out_channels),
        ("size", conv.size),
        ("out_size", conv.out_size),
    ):
        features[f"{name}_mod_4"] = extent % 4
    features["in_channels_mod_32"] = conv.in_channels % 32
    features["out_channels_mod_32"] = conv.out_channels % 32
    return features
