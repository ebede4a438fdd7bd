"""`energy`: power and energy of convolutions under a power meter."""

from __future__ import annotations

import numpy as np

from tilewright.cost.floors import Peaks, roofline_s
from tilewright.predict.base import (
    Column,
    Columns,
    Family,
    Features,
    Floats,
    Target,
    features_of,
)
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.families.convolution import Convolution, log2
from tilewright.predict.regressors import Forest

_PEAKS = Peaks(flop_per_s=3e11, bytes_per_s=1.5e10, cache_bytes_per_s=1.5e10)
_LAUNCH_S = 3e-4
"""A small GPU's peaks and launch; they shape the natural size of an energy and nothing else."""


def _features(columns: Columns, _sheet: Datasheet) -> Features:
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
    return features_of(_few_features(conv), roofline_s(conv.work, _PEAKS) + _LAUNCH_S)


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
    features=_features,
    regressor=Forest(),
    roofed=False,
)
