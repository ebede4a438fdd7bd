"""`conv2d`: forward convolutions on GPUs, timed."""

from __future__ import annotations

import numpy as np

from tilewright.cost.floors import Work, roofline_s
from tilewright.predict.base import Column, Columns, Family, Features, Target, features_of
from tilewright.predict.datasheets import Datasheet
from tilewright.predict.families.convolution import Convolution, convolution_features, log2

_ACTIVATIONS = ("none", "relu", "sigmoid", "tanh")


def _features(columns: Columns, sheet: Datasheet) -> Features:
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
    features=_features,
)
