"""What rounding behind the transforms of a Winograd convolution adds to its results, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright.core.element_types import element_type
from tilewright.graph.network import Array
from tilewright.kernels.conv2d_winograd import Transforms
from tilewright.kernels.convolution import Convolution
from tilewright.kernels.run_rounding import of_products
from tilewright.kernels.winograd_transforms import Matrix, double


def rounding_errors(
    form: Transforms, conv: Convolution, data: Array, weights: Array, dtype: str, run: int = 0
) -> Array:
    """The convolution [N, O, H, W] with transformed data and transformed weights rounded to a
    `dtype`, less that without rounding; with errors of additions in that type, as large as they
    are, where runs of so many products are added up in it."""
    ways = (form.vertical, form.horizontal)
    read = _along_both(_windows(form, conv, data), *(way.input for way in ways))
    held = _along_both(weights, *(way.weight for way in ways))
    down, across = form.tiles(conv)
    # [positions, tiles, channels in] and [positions, channels in, channels out]
    left = read.transpose(4, 5, 0, 2, 3, 1).reshape(form.positions, -1, conv.in_channels)
    right = held.transpose(2, 3, 1, 0).reshape(form.positions, conv.in_channels, -1)
    coarse, coarse_right = (_rounded(factor, dtype) for factor in (left, right))
    errors = (coarse - left) @ coarse_right + left @ (coarse_right - right)
    errors += _additions(coarse, coarse_right, run)
    tiles = errors.reshape(*(way.positions for way in ways), conv.batch, down, across, -1)
    found = _along_both(tiles.transpose(2, 5, 3, 4, 0, 1), *(way.output for way in ways))
    images = found.transpose(0, 1, 2, 4, 3, 5).reshape(
        conv.batch, conv.out_channels, down * form.vertical.outputs, -1
    )
    return images[:, :, : conv.out_height, : conv.out_width]


def _additions(left: Any, right: Any, run: int) -> Any:
    """Errors of additions in runs, [positions, tiles, channels out], drawn."""
    if not run:
        return 0.0
    shape = (*left.shape[:2], right.shape[-1])
    drawn: Any = np.random.default_rng(0).standard_normal(shape, np.float32)
    return drawn * of_products(left, right, run)[:, None].astype(np.float32)


def _windows(form: Transforms, conv: Convolution, data: Array) -> Any:
    """What each tile of the output reads, zeros around the data: [N, C, down, across, rows,
    columns]."""
    borders, shape, steps = [(0, 0), (0, 0)], list[int](), list[slice]()
    for axis, way in enumerate((form.vertical, form.horizontal)):
        covered = form.tiles(conv)[axis] * way.outputs
        before = conv.padding[axis]
        needed = covered + way.taps - 1
        borders.append((before, needed - before - data.shape[2 + axis]))
        shape.append(way.positions)
        steps.append(slice(None, covered, way.outputs))
    every = sliding_window_view(np.pad(data, borders), shape, axis=(2, 3))
    return every[:, :, *steps]


def _along_both(values: Any, vertical: Matrix, horizontal: Matrix) -> Any:
    """Both last axes transformed, in single precision."""
    for matrix in (vertical, horizontal):
        values = np.tensordot(values, double(matrix).astype(np.float32), (-2, 1))
    return values


def _rounded(values: Any, dtype: str) -> Any:
    return values.astype(element_type(dtype).numpy).astype(np.float32)
