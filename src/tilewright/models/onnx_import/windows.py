"""Extents and padding of sliding windows, as ONNX counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.models.onnx_import.node import OnnxNode


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
    """The window of a convolution or pooling over an input of spatial `extent`."""
    rank = len(extent)
    strides = node.integers("strides") or (1,) * rank
    dilation = node.integers("dilations") or (1,) * rank
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    automatic = node.text("auto_pad", "NOTSET")
    pads = node.integers("pads") or (0,) * (2 * rank)
    before, after = pads[:rank], pads[rank:]
    if automatic == "VALID":
        before = after = (0,) * rank
    elif automatic in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max(0, (-(-size // stride) - 1) * stride + span - size)
            for size, stride, span in zip(extent, strides, spans, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        before, after = (small, large) if automatic == "SAME_UPPER" else (large, small)
    extra = (0,) * rank
    if node.integer("ceil_mode", 0) and automatic not in ("SAME_UPPER", "SAME_LOWER"):
        extra = tuple(
            _overhang(extent[i] + before[i], after[i], spans[i], strides[i]) for i in range(rank)
        )
    return Window(
        kernel=tuple(kernel),
        strides=strides,
        dilation=dilation,
        before=tuple(before),
        after=tuple(after),
        extra=extra,
    )


def _overhang(covered: int, after: int, span: int, stride: int) -> int:
    """How far the last window reaches past the padding; it must start inside the input.

    `covered` is the extent with the padding in front.
    """
    count = -(-(covered + after - span) // stride) + 1
    if (count - 1) * stride >= covered:
        count -= 1
    return max(0, (count - 1) * stride + span - covered - after)
