"""What additions in runs of halves put into results, in numpy; see `float16_sums`.

    x·w of a run   a, b, c, …       sums that are reached   a, a + b, a + b + c, …

Each sum is rounded when it is reached, by an error that its size allows and that is independent of
others. So a few results tell how large errors are, and no kernel has to be run.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.graph.network import Array
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.columns import Floats, Numbers
from tilewright.kernels.conv2d_transposed import TransposedConvolution
from tilewright.kernels.convolution import Convolution

_SAMPLED = 24
"""Places along each axis of a result that are looked at."""
_MEAN_SQUARE = 0.0451 * (2.0 * (element_type(FLOAT16).unit_roundoff or 0.0)) ** 2
"""Of the error of a rounding relative to what is rounded, numbers of all fractions being as
frequent on a logarithmic scale: (1 - 1/4) / (24 ln 2) of the square of a unit in the last place."""

_LEAST_SQUARE = float(np.finfo(np.float16).smallest_subnormal) ** 2 / 12.0
"""Of the error of a rounding below the normal numbers."""


def of_convolution(conv: Convolution, data: Array, weights: Array, block: int, run: int) -> Array:
    """The standard deviations of errors by channel of the result, as [channels, 1, 1]: of runs of
    so many products, of a block of channels or of those of a row of taps."""
    pixels, channels = _some(conv.batch * conv.pixels), _some(conv.out_channels)
    kept = weights.astype(np.float64)
    read = _windows(conv, data.astype(np.float64), pixels)[:, :, :, channels // conv.group_out]
    products = read * kept[channels].transpose(2, 3, 0, 1)
    whole = np.pad(products, [*[(0, 0)] * 4, (0, -conv.group_in % block)])
    split = whole.reshape(*whole.shape[:4], -1, block).transpose(0, 3, 4, 1, 2, 5)
    found = _deviation(split.reshape(len(pixels) * len(channels), -1, run))
    return (found * _shares(kept.reshape(len(kept), -1)))[:, None, None]


def of_phases(
    conv: TransposedConvolution, data: Array, weights: Array, block: int, run: int
) -> Array:
    """As `of_convolution` of a transposed one, on average over its phases: of runs of so many
    products, of a block of channels or of those of a row of taps."""
    kept = weights.astype(np.float64).reshape(conv.groups, conv.group_in, conv.group_out, -1)
    channels = _some(conv.out_channels)
    group, within = np.divmod(channels, conv.group_out)
    squares = 0.0
    for ry, y in enumerate(conv.rows.first):
        for rx, x in enumerate(conv.columns.first):
            if y is None or x is None:
                continue
            read = _phase(conv, data.astype(np.float64), ry, rx)
            taps = np.zeros((len(channels), conv.rows.taps, conv.columns.taps, conv.group_in))
            part = weights.astype(np.float64)
            part = part[:, :, y :: conv.rows.period, x :: conv.columns.period]
            part = part.reshape(conv.groups, conv.group_in, conv.group_out, *part.shape[2:])
            taps[:, : part.shape[3], : part.shape[4]] = part[group, :, within].transpose(0, 2, 3, 1)
            products = read[:, group] * taps
            whole = np.pad(products, [*[(0, 0)] * 4, (0, -conv.group_in % block)])
            split = whole.reshape(*whole.shape[:4], -1, block).transpose(0, 1, 4, 2, 3, 5)
            squares += _deviation(split.reshape(len(read) * len(channels), -1, run)) ** 2
    powers = kept.transpose(0, 2, 1, 3).reshape(conv.out_channels, -1)
    return (np.sqrt(squares / conv.phases) * _shares(powers))[:, None, None]


def _phase(conv: TransposedConvolution, data: Floats, ry: int, rx: int) -> Floats:
    """What some places of a phase of the result are sums of: [places, groups, taps down, taps
    across, channels]."""
    borders = [axis.border(axis.positions) for axis in (conv.rows, conv.columns)]
    bordered = np.pad(data, ((0, 0), (0, 0), *borders))
    shape = (conv.batch, conv.rows.positions, conv.columns.positions)
    image, down, across = np.unravel_index(_some(prod(shape)), shape)
    at = [
        place[:, None] + axis.base[phase] + before - np.arange(axis.taps) * axis.advance
        for place, axis, phase, (before, _) in zip(
            (down, across), (conv.rows, conv.columns), (ry, rx), borders, strict=True
        )
    ]
    found = bordered[image[:, None, None], :, at[0][:, :, None], at[1][:, None, :]]
    return found.reshape(*found.shape[:3], conv.groups, conv.group_in).transpose(0, 3, 1, 2, 4)


def of_dense(data: Array, weights: Array, run: int) -> Array:
    """The same by column of the result of a dense layer, as [columns]; no run of products is added
    up in halves where `run` is 0."""
    rows = data.reshape(-1, data.shape[-1]).astype(np.float64)
    columns = weights.T.astype(np.float64)
    if not run:
        return np.zeros(len(columns))
    products: Floats = rows[_some(len(rows))][:, None] * columns[_some(len(columns))]
    whole = np.pad(products, ((0, 0), (0, 0), (0, -products.shape[-1] % run)))
    return _deviation(whole.reshape(-1, whole.shape[-1] // run, run)) * _shares(columns)


def of_products(left: Array, right: Array, run: int) -> Floats:
    """The same by position and column of the products of several matrices, [positions, rows, depth]
    and [positions, depth, columns], as [positions, columns]."""
    pairs = zip(left, right, strict=True)
    return np.array([of_dense(*pair, run) for pair in pairs], dtype=np.float64)


def _deviation(products: Floats) -> float:
    """That of sums [sums, runs, products], on average."""
    reached: Floats = np.cumsum(products, axis=-1)
    squares = _MEAN_SQUARE * np.square(reached) + _LEAST_SQUARE
    return float(np.sqrt(np.sum(squares) / len(products)))


def _shares(weights: Floats) -> Floats:
    """By which a mean deviation is multiplied for each result, by the size of its weights
    [results, …]."""
    powers: Floats = np.square(weights).mean(axis=1)
    return np.sqrt(powers / (float(powers.mean()) or 1.0))


def _some(count: int) -> Numbers:
    """Some of so many places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, _SAMPLED).astype(np.int64))


def _windows(conv: Convolution, data: Floats, pixels: Numbers) -> Floats:
    """What some pixels of the result are sums of: [pixels, kh, kw, groups, channels]."""
    top, left, bottom, right = conv.padding
    bordered = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    image, place = np.divmod(pixels, conv.pixels)
    down, across = (
        at[:, None] * stride + np.arange(taps) * apart
        for at, stride, taps, apart in zip(
            np.divmod(place, conv.out_width),
            conv.strides,
            conv.kernel,
            conv.dilation,
            strict=True,
        )
    )
    found = bordered[image[:, None, None], :, down[:, :, None], across[:, None, :]]
    return found.reshape(*found.shape[:3], conv.groups, conv.group_in)
