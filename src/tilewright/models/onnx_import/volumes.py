"""Windows over three spatial axes, by way of images: planes of a volume, one behind the other.

    [n, c, depth, h, w]  →  planes [n, depth, c, h, w]

A convolution over a volume is one of images whose channels are those of all planes that a result
sees; a transposed one gives the planes that belong to a plane of the input as channels of one
image. Pooling goes over images first, then over planes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from tilewright.models.onnx_import.node import Tensor, number_limits

Images = Callable[[Tensor, Tensor], Tensor]
"""A convolution of images with weights."""
_SWAPPED = (0, 2, 1, 3, 4)
"""Between volumes and planes; also between planes and channels of weights."""


def convolved_volume(
    x: Tensor, weight: Tensor, depth: Sequence[int], groups: int, images: Images
) -> Tensor:
    """The convolution of a volume [n, c, depth, h, w] with weights [o, c/groups, kd, kh, kw].

    `depth` is the window along the depth: stride, dilation, padding before and after. `images`
    convolves [m, channels, h, w] with weights of as many channels per group.
    """
    stride, dilation, before, after = depth
    taps = weight.shape[2]
    count = (x.shape[2] + before + after - (taps - 1) * dilation - 1) // stride + 1
    planes = _padded(x.transpose(_SWAPPED), before, after, 0.0)
    parts = [_part(planes, tap * dilation, count, stride) for tap in range(taps)]
    across = weight.transpose(_SWAPPED)
    filters = across.reshape((across.shape[0], taps * across.shape[2], *across.shape[3:]))
    return _volume(images(_images(parts, groups), filters), x.shape[0])


def transposed_volume(
    x: Tensor, weight: Tensor, depth: Sequence[int], groups: int, images: Images
) -> Tensor:
    """The transposed convolution of a volume with weights [c, o/groups, kd, kh, kw].

    `depth` is the window along the depth: stride, dilation, padding before, extent of the result.
    Result plane q · stride + phase is a sum over taps k of input plane q + (phase + before - k ·
    dilation) / stride, where that is whole. All phases read the same planes; weights that one of
    them lacks are zeros.
    """
    stride, dilation, before, extent = depth
    channels, outputs, taps, *kernel = weight.shape
    places = [(p, (p + before - k * dilation), k) for p in range(stride) for k in range(taps)]
    tap_of = {(p, place // stride): k for p, place, k in places if place % stride == 0}
    lowest, highest = (pick(shift for _, shift in tap_of) for pick in (min, max))
    count, shifts = -(-extent // stride), range(lowest, highest + 1)
    skipped, missing = max(0, -lowest), max(0, highest + count - x.shape[2])
    planes = _padded(x.transpose(_SWAPPED), skipped, missing, 0.0)
    parts = [_part(planes, shift + skipped, count, 1) for shift in shifts]

    def filters(phase: int, shift: int) -> Tensor:
        tap = tap_of.get((phase, shift))
        if tap is None:
            return weight.filled(0.0, (channels, outputs, *kernel))
        return weight.cut({2: slice(tap, tap + 1)}).reshape((channels, outputs, *kernel))

    rows = [
        _joined([filters(phase, shift) for phase in range(stride)], 1).reshape(
            (groups, channels // groups, stride * outputs, *kernel)
        )
        for shift in shifts
    ]
    joined = _joined(rows, 1)
    result = images(
        _images(parts, groups), joined.reshape((len(shifts) * channels, *joined.shape[2:]))
    )
    sizes = result.shape[2:]
    phases = result.reshape((x.shape[0] * count, groups, stride, outputs, *sizes))
    planes = phases.transpose((0, 2, 1, 3, 4, 5)).reshape(
        (x.shape[0] * count * stride, groups * outputs, *sizes)
    )
    return _volume(planes, x.shape[0]).cut({2: slice(0, extent)})


def largest_of_volume(
    x: Tensor, depth: Sequence[int], images: Callable[[Tensor], Tensor]
) -> Tensor:
    """The largest elements of windows of `depth`: taps, stride, dilation, padding before and
    after; `images` finds those of images."""
    parts = _pooled_planes(x, depth, images, number_limits(x.dtype)[0])
    return _volume_of(reduce(lambda a, b: a.emit("maximum", b), parts))


def mean_of_volume(
    x: Tensor, depth: Sequence[int], counted: range, images: Callable[[Tensor], Tensor]
) -> Tensor:
    """The means of windows of `depth`, as `largest_of_volume`; places along the depth outside
    `counted` do not count. `images` finds the means of images."""
    taps, stride, dilation, before, _ = depth
    total = _volume_of(reduce(lambda a, b: a + b, _pooled_planes(x, depth, images, 0.0)))
    sizes = [
        sum(first * stride - before + tap * dilation in counted for tap in range(taps))
        for first in range(total.shape[2])
    ]
    shares = np.array(1.0 / np.maximum(sizes, 1), np.dtype(x.dtype)).reshape((-1, 1, 1))
    return total.emit("multiply", total.builder.constant(shares))


def _pooled_planes(
    x: Tensor, depth: Sequence[int], images: Callable[[Tensor], Tensor], filling: float
) -> list[Tensor]:
    """For each tap along the depth the planes that it meets, their images pooled."""
    taps, stride, dilation, before, after = depth
    batch, channels, extent, *sizes = x.shape
    pooled = images(x.transpose(_SWAPPED).reshape((batch * extent, channels, *sizes)))
    planes = pooled.reshape((batch, extent, *pooled.shape[1:]))
    count = (extent + before + after - (taps - 1) * dilation - 1) // stride + 1
    padded = _padded(planes, before, after, filling)
    return [_part(padded, tap * dilation, count, stride) for tap in range(taps)]


def _padded(planes: Tensor, before: int, after: int, filling: float) -> Tensor:
    if not before and not after:
        return planes
    return planes.padded((0, before, 0, 0, 0), (0, after, 0, 0, 0), filling, "constant")


def _part(planes: Tensor, start: int, count: int, stride: int) -> Tensor:
    """So many planes, from one on, a stride apart."""
    return planes.cut({1: slice(start, start + (count - 1) * stride + 1, stride)})


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else parts[0].emit("concat", *parts[1:], axis=axis)


def _images(parts: Sequence[Tensor], groups: int) -> Tensor:
    """Planes [n, depth, c, h, w] side by side, within each group of channels, as images."""
    batch, count, channels, *sizes = parts[0].shape
    grouped = [part.reshape((batch * count, groups, channels // groups, *sizes)) for part in parts]
    return _joined(grouped, 2).reshape((batch * count, len(parts) * channels, *sizes))


def _volume(images: Tensor, batch: int) -> Tensor:
    """[n · depth, c, h, w] → [n, c, depth, h, w]."""
    return _volume_of(images.reshape((batch, images.shape[0] // batch, *images.shape[1:])))


def _volume_of(planes: Tensor) -> Tensor:
    return planes.transpose(_SWAPPED)
