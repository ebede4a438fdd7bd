"""Convolutions and pooling over one to three spatial axes; extents and padding of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from tilewright.core.errors import ModelError, NotCompilable
from tilewright.graph.clean.edit import only_if
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.graph.inputs import IndexRange
from tilewright.models.onnx_import.node import (
    OnnxNode,
    Tensor,
    Translated,
    require_indices,
    translates,
)
from tilewright.models.onnx_import.volumes import (
    convolved_volume,
    largest_of_volume,
    mean_of_volume,
    transposed_volume,
)

_SAME = ("SAME_UPPER", "SAME_LOWER")
_MOST_BLOCKS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window over the spatial axes, one entry per axis; `before` and `after` are padding.

    `extra` is what `ceil_mode` adds behind: never counted as part of an average.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def padding(self) -> tuple[int, ...]:
        """Before and after, `ceil_mode` included, padded to two axes: top, left, bottom, right."""
        behind = tuple(a + e for a, e in zip(self.after, self.extra, strict=True))
        return two(self.before, 0) + two(behind, 0)

    def last_axes(self, count: int) -> Window:
        """The window over the last axes alone."""
        return Window(
            kernel=self.kernel[-count:], strides=self.strides[-count:],
            dilation=self.dilation[-count:], before=self.before[-count:],
            after=self.after[-count:], extra=self.extra[-count:],
        )  # fmt: skip

    def drops_last(self, extent: Sequence[int]) -> bool:
        """Whether `ceil_mode` leaves something over along some axis: its window would start in the
        padding behind the input."""
        return any(
            more == 0 and (size + start + end - (k - 1) * d - 1) % stride
            for size, k, stride, d, start, end, more in zip(
                extent, self.kernel, self.strides, self.dilation, self.before, self.after,
                self.extra, strict=True,
            )
        )  # fmt: skip


def two(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """The entries of a window over one or two axes, as over two."""
    return tuple(values) if len(values) == 2 else (fill, *values)


def read_window(node: OnnxNode, extent: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window of a convolution or pooling over an input of spatial `extent`.

    With `ceil_mode` the last window may reach past the padding; it must start inside the input. A
    single one that does is cut to what is there.
    """
    rank = len(extent)
    strides, dilation = _steps(node, rank)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    automatic = node.text("auto_pad", "NOTSET")
    pads = () if automatic == "VALID" else node.integers("pads")
    before, after = pads[:rank] or (0,) * rank, pads[rank:] or (0,) * rank
    extra = [0] * rank
    if automatic in _SAME:
        totals = [
            max(0, (-(-size // stride) - 1) * stride + span - size)
            for size, stride, span in zip(extent, strides, spans, strict=True)
        ]
        before, after = _halves(totals, automatic)
    elif node.integer("ceil_mode", 0):
        for i, (stride, span) in enumerate(zip(strides, spans, strict=True)):
            covered = extent[i] + before[i]
            last = -(-(covered + after[i] - span) // stride) * stride
            last -= stride if last >= covered else 0
            extra[i] = max(0, last + span - covered - after[i])
            if not last and dilation[i] == 1 and extra[i]:  # one window, around everything
                kernel, extra[i] = [*kernel], 0
                kernel[i] = covered + after[i]
    return Window(
        kernel=tuple(kernel),
        strides=strides,
        dilation=dilation,
        before=before,
        after=after,
        extra=tuple(extra),
    )


def _steps(node: OnnxNode, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilation."""
    ones = (1,) * rank
    return node.integers("strides") or ones, node.integers("dilations") or ones


def _halves(totals: Sequence[int], automatic: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after; what is odd lies behind with `SAME_UPPER`, else in front."""
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (small, large) if automatic == "SAME_UPPER" else (large, small)


def as_2d(x: Tensor) -> Tensor:
    """[N,C,W] → [N,C,1,W]; tensors of rank four stay."""
    return x.reshape((*x.shape[:2], *two(x.shape[2:], 1)))


def _restored(x: Tensor, rank: int) -> Tensor:
    return x if rank == 4 else x.reshape((*x.shape[:2], x.shape[3]))


def _with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x
    channels = x.shape[1]
    if bias.shape != (channels,):
        raise ModelError(f"bias {list(bias.shape)} does not fit {channels} channels")
    return x + bias.reshape((channels, 1, 1))


def convolved(node: OnnxNode, x: Tensor, weight: Tensor, window: Window) -> Tensor:
    """conv2d with a window, over one or two axes, and the groups that the node names."""
    return as_2d(x).emit(
        "conv2d",
        as_2d(weight),
        strides=two(window.strides, 1),
        padding=window.padding,
        dilation=two(window.dilation, 1),
        groups=node.integer("group", 1),
    )


@translates("Conv")
def convolution(node: OnnxNode) -> Translated:
    """Conv → conv2d, then add for the bias."""
    x, weight = node.several(2)
    only_if(x.rank in (3, 4, 5))
    kernel, given = weight.shape[2:], node.integers("kernel_shape", weight.shape[2:])
    if given != kernel:
        raise ModelError(f"kernel_shape {[*given]} is not that of the weight, {[*kernel]}")
    window = read_window(node, x.shape[2:], kernel)
    only_if(min((*window.before, *window.after)) >= 0)

    def images(data: Tensor, filters: Tensor) -> Tensor:
        seen = window.last_axes(2) if x.rank == 5 else window
        return _with_bias(convolved(node, data, filters, seen), node.given(2))

    if x.rank < 5:
        return _restored(images(x, weight), x.rank)
    depth = (window.strides[0], window.dilation[0], window.before[0], window.after[0])
    return convolved_volume(x, weight, depth, node.integer("group", 1), images)


def transposed_images(
    node: OnnxNode, data: Tensor, filters: Tensor, padding: tuple[int, ...]
) -> Tensor:
    """conv2d_transpose over the last one or two axes of a node's window, with the groups that it
    names; `padding` is as `transposed_padding` gives it."""
    rank = len(padding) // 2
    cut, grown = (
        tuple(
            max(0, sign * size)
            for side in (padding[:rank], padding[rank:])
            for size in two(side[-2:], 0)
        )
        for sign in (1, -1)
    )
    strides, dilation = _steps(node, rank)
    extra = node.integers("output_padding") or (0,) * rank
    result = as_2d(data).emit(
        "conv2d_transpose",
        as_2d(filters),
        strides=two(strides[-2:], 1),
        padding=cut,
        output_padding=two(extra[-2:], 0),
        dilation=two(dilation[-2:], 1),
        groups=node.integer("group", 1),
    )
    if any(grown):
        result = result.padded((0, 0, *grown[:2]), (0, 0, *grown[2:]), 0.0, "constant")
    return result


@translates("ConvTranspose")
def transposed_convolution(node: OnnxNode) -> Translated:
    """ConvTranspose → conv2d_transpose, then add for the bias; negative padding, which comes of an
    `output_shape` that nothing reaches the end of, is zeros around it."""
    x, weight = node.several(2)
    rank, groups = x.rank - 2, node.integer("group", 1)
    only_if(rank in (1, 2, 3))
    extra = node.integers("output_padding") or (0,) * rank
    padding = transposed_padding(node, x.shape[2:], weight.shape[2:], extra)

    def images(data: Tensor, filters: Tensor) -> Tensor:
        return transposed_images(node, data, filters, padding)

    if rank < 3:
        return _restored(_with_bias(images(x, weight), node.given(2)), x.rank)
    strides, dilation = _steps(node, rank)
    reached = strides[0] * (x.shape[2] - 1) + (weight.shape[2] - 1) * dilation[0] + 1
    extent = reached + extra[0] - padding[0] - padding[rank]
    depth = (strides[0], dilation[0], padding[0], extent)
    result = transposed_volume(x, weight, depth, groups, images)
    bias = node.given(2)
    return result if bias is None else result + bias.reshape((bias.shape[0], 1, 1, 1))


@translates("Col2Im")
def image_of_columns(node: OnnxNode) -> Translated:
    """Col2Im → conv2d_transpose with filters that are zeros but for a one: filter number i of a
    channel puts its element where element i of the block lies."""
    x, (_, channels, *image) = node.input(0), node.declared()
    rank, pads = len(image), node.integers("pads") or (0,) * (2 * len(image))
    only_if(rank in (1, 2))
    strides, dilation = _steps(node, rank)
    room = [image[i] + pads[i] + pads[rank + i] for i in range(rank)]

    def places(block: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            (room[i] - dilation[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
        )

    def fits(block: Sequence[int]) -> bool:
        spots = places(block)
        right = channels * prod(block) == x.shape[1] and prod(spots) == x.shape[2]
        return right and min(spots) > 0

    only_if(min(room) > 0 and min(strides) > 0)
    if node.value(2) is None:
        only_if(prod(room) <= _MOST_BLOCKS)
        blocks = [each for each in product(*(range(1, size + 1) for size in room)) if fits(each)]
        only_if(len(blocks) == 1)
        block = node.implied(2, blocks[0])
    else:
        block = node.known_integers(2)
    node.sizes(1, lambda: image)
    spots, size = places(block), prod(block)
    only_if(channels * size * size * np.dtype(x.dtype).itemsize <= FOLDED_BYTES)
    filters = np.tile(np.eye(size, dtype=np.dtype(x.dtype)), (channels, 1))
    left = [(room[i] - dilation[i] * (block[i] - 1) - 1) % strides[i] for i in range(rank)]
    result = as_2d(x.reshape((x.shape[0], channels * size, *spots))).emit(
        "conv2d_transpose",
        as_2d(node.constant(filters.reshape((channels * size, 1, *block)))),
        strides=two(strides, 1),
        padding=two(pads[:rank], 0) + two(pads[rank:], 0),
        output_padding=two(left, 0),
        dilation=two(dilation, 1),
        groups=channels,
    )
    return _restored(result, rank + 2)


def transposed_padding(
    node: OnnxNode, extent: tuple[int, ...], kernel: tuple[int, ...], extra: tuple[int, ...]
) -> tuple[int, ...]:
    """Padding before and after, from `output_shape` or `auto_pad` where given; negative behind what
    anything reaches, if `output_shape` wants that. `auto_pad` never does: where strides are longer
    than the kernel, the result is shorter than input times stride.

    Source: the ONNX operator specification, ConvTranspose; for short kernels ONNX's shape inference
    and ONNX Runtime, which both differ from it.
    """
    rank = len(kernel)
    strides, dilation = _steps(node, rank)
    automatic = node.text("auto_pad", "NOTSET")
    wanted = node.integers("output_shape")[-rank:]
    if not wanted and automatic not in _SAME:
        return (() if automatic == "VALID" else node.integers("pads")) or (0,) * (2 * rank)
    reached = [
        strides[i] * (extent[i] - 1) + extra[i] + (kernel[i] - 1) * dilation[i] + 1
        for i in range(rank)
    ]
    same = [min(strides[i] * extent[i], reached[i]) for i in range(rank)]
    totals = [have - want for have, want in zip(reached, wanted or same, strict=True)]
    before, after = _halves([max(0, total) for total in totals], automatic)
    # what is wanted beyond the last element that anything reaches lies behind it
    return before + tuple(min(total, side) for total, side in zip(totals, after, strict=True))


@translates("MaxPool", "AveragePool", "LpPool")
def pool(node: OnnxNode) -> Translated:
    """MaxPool, AveragePool → max_pool2d, avg_pool2d; `ceil_mode` becomes padding.

    LpPool → the root of a sum of powers, which is an average that counts all times the window's
    size.
    """
    x = node.input(0)
    if node.uses_output(1):
        raise NotCompilable(
            "the second output, the places of the largest elements, is not supported",
            hint="Cut the network before the node that reads it, or export it without.",
        )
    window = read_window(node, x.shape[2:], node.integers("kernel_shape"))
    inside = min((*window.before, *window.after)) >= 0
    if x.rank == 5 and node.operator != "LpPool" and inside:
        return _pooled_volume(node, x, window)
    if x.rank not in (3, 4):
        return _resolved(node, window, x.shape[2:])
    only_if(min(window.padding) >= 0)
    if node.operator == "MaxPool":
        result = _pooled("max_pool2d", as_2d(x), window, window.padding)
    else:
        result = (average if node.operator == "AveragePool" else _norm)(node, x, window)
    return _restored(result, x.rank)


def _pooled_volume(node: OnnxNode, x: Tensor, window: Window) -> Tensor:
    """MaxPool or AveragePool over three axes."""
    images = window.last_axes(2)
    before, after = window.before[0], window.after[0]
    depth = (
        window.kernel[0], window.strides[0], window.dilation[0], before, after + window.extra[0]
    )  # fmt: skip
    if node.operator == "MaxPool":
        return largest_of_volume(
            x, depth, lambda data: _pooled("max_pool2d", data, images, images.padding)
        )
    inside = bool(node.integer("count_include_pad", 0))
    counted = range(-before, x.shape[2] + after) if inside else range(x.shape[2])
    return mean_of_volume(x, depth, counted, lambda data: average(node, data, images))


def _resolved(node: OnnxNode, window: Window, extent: tuple[int, ...]) -> OnnxNode:
    """A pooling over another number of axes is carried along, its padding written out.

    TVM keeps a last window that starts in the padding, and pads sums of powers in `ceil_mode` by
    more than nothing.
    """
    same = node.text("auto_pad", "NOTSET") in _SAME
    disputed = window.drops_last(extent) or (node.operator == "LpPool" and any(window.extra))
    if disputed and node.integer("ceil_mode", 0) and not same:
        raise NotCompilable(
            f"ceil_mode over {len(window.kernel)} axes is not supported in this form"
        )
    named = {"pads": [*window.before, *window.after], "ceil_mode": int(any(window.extra))}
    return node.altered(node.inputs, auto_pad=None, **named)


def average(node: OnnxNode, x: Tensor, window: Window) -> Tensor:
    """An average that counts padding where it is to, but never what `ceil_mode` adds."""
    data, padding = as_2d(x), window.padding
    counted = bool(node.integer("count_include_pad", 0)) and any(window.before + window.after)
    if counted and any(window.extra):
        before, after = (0, 0, *two(window.before, 0)), (0, 0, *two(window.after, 0))
        data = data.padded(before, after, 0.0, "constant")
        padding, counted = (0, 0, *two(window.extra, 0)), False
    return _pooled("avg_pool2d", data, window, padding, count_include_pad=counted)


def _norm(node: OnnxNode, x: Tensor, window: Window) -> Tensor:
    p, size = node.integer("p", 2), x.emit("abs")
    power = size
    for _ in range(p - 1):
        power = power * size
    average = _pooled("avg_pool2d", as_2d(power), window, window.padding, count_include_pad=True)
    total = average * prod(window.kernel)
    if p == 2:
        return total.emit("sqrt")
    return total if p == 1 else total.emit("power", 1 / p)


def _pooled(
    operator: str, data: Tensor, window: Window, padding: tuple[int, ...], **named: bool
) -> Tensor:
    return data.emit(
        operator,
        kernel=two(window.kernel, 1),
        strides=two(window.strides, 1),
        padding=padding,
        dilation=two(window.dilation, 1),
        **named,
    )


@translates("RoiAlign")
def region_pool(node: OnnxNode) -> Translated:
    """RoiAlign is carried along, its regions scaled ahead: TVM shifts them by half an element
    before it scales them, ONNX after it. The largest of weighted elements, `max`, is refused."""
    if node.text("mode", "avg") == "max":
        raise NotCompilable("mode 'max' is not supported, only 'avg' is")
    scale = node.number("spatial_scale", 1.0)
    only_if(scale != 1)
    x, regions, batch = node.several(3)
    return node.altered((x, regions * scale, batch), spatial_scale=1.0)


@translates("MaxRoiPool")
def max_region_pool(node: OnnxNode) -> Translated:
    """MaxRoiPool is carried along. Its regions, rows of (image, x1, y1, x2, y2), name an image by a
    float, which no kernel checks: image → table[int(image)], and indices of tables are checked.

    Negative ones do not count from the end here; they become the first that the table lacks.
    """
    x, regions = node.several(2)
    images, (rows, width) = x.shape[0], regions.shape
    if regions.value is not None:
        last = IndexRange(lowest=0, highest=images - 1)
        require_indices(regions.value[:, :1].astype(np.int64), (last,))
        return node
    number = _columns(regions, rows, 0, 1).emit("cast", dtype="int64")
    number = number.emit("less", 0).emit("where", number.filled(images), number)
    image = node.constant(np.arange(images, dtype=regions.dtype)).emit("gather", number, axis=0)
    return node.altered((x, image.emit("concat", _columns(regions, rows, 1, width), axis=1)))


def _columns(x: Tensor, rows: int, start: int, stop: int) -> Tensor:
    return x.emit("slice", starts=(0, start), stops=(rows, stop), steps=(1, 1))


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode) -> Translated:
    """Global pooling → a reduction over all spatial axes."""
    x = node.input(0)
    operator = "reduce_mean" if node.operator == "GlobalAveragePool" else "reduce_max"
    return x.emit(operator, axes=tuple(range(2, x.rank)), keepdims=True)
