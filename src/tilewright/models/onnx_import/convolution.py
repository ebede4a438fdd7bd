"""Conv and ConvTranspose, over one or two spatial axes."""

from __future__ import annotations

from tilewright.core.errors import ModelError
from tilewright.models.onnx_import.builder import GraphBuilder
from tilewright.models.onnx_import.node import OnnxNode
from tilewright.models.onnx_import.registry import Translated, translates
from tilewright.models.onnx_import.windows import read_window, two


def _as_2d(builder: GraphBuilder, name: str) -> str:
    """[N,C,W] → [N,C,1,W]; tensors of rank four stay."""
    shape = builder.shape(name)
    return builder.reshape(name, (*shape[:2], *two(shape[2:], 1)))


def _with_bias(builder: GraphBuilder, name: str, bias: str) -> str:
    if not bias:
        return name
    channels = builder.shape(name)[1]
    if builder.shape(bias) != (channels,):
        raise ModelError(f"bias {list(builder.shape(bias))} does not fit {channels} channels")
    return builder.emit("add", name, builder.reshape(bias, (channels, 1, 1)))


def _restore(builder: GraphBuilder, name: str, rank: int) -> str:
    shape = builder.shape(name)
    return name if rank == 4 else builder.reshape(name, (*shape[:2], shape[3]))


@translates("Conv")
def convolution(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """Conv → conv2d, then add for the bias."""
    x, weight = node.input(0), node.input(1)
    shape = builder.shape(x)
    if len(shape) not in (3, 4):
        return None
    kernel = builder.shape(weight)[2:]
    if node.integers("kernel_shape", kernel) != kernel:
        given = list(node.integers("kernel_shape"))
        raise ModelError(f"kernel_shape {given} is not that of the weight, {list(kernel)}")
    window = read_window(node, shape[2:], kernel)
    if min(window.padding) < 0:
        return None
    result = builder.emit(
        "conv2d",
        _as_2d(builder, x),
        _as_2d(builder, weight),
        strides=two(window.strides, 1),
        padding=window.padding,
        dilation=two(window.dilation, 1),
        groups=node.integer("group", 1),
    )
    return _restore(builder, _with_bias(builder, result, node.input(2)), len(shape))


@translates("ConvTranspose")
def transposed_convolution(node: OnnxNode, builder: GraphBuilder) -> Translated:
    """ConvTranspose → conv2d_transpose, then add for the bias; negative padding, which comes of an
    `output_shape` that nothing reaches the end of, is zeros around it."""
    x, weight = node.input(0), node.input(1)
    shape, kernel = builder.shape(x), builder.shape(weight)[2:]
    if len(shape) not in (3, 4):
        return None
    rank = len(kernel)
    strides = node.integers("strides") or (1,) * rank
    dilation = node.integers("dilations") or (1,) * rank
    extra = node.integers("output_padding") or (0,) * rank
    padding = _transposed_padding(node, shape[2:], kernel, extra)
    cut, grown = (tuple(max(0, sign * size) for size in padding) for sign in (1, -1))
    result = builder.emit(
        "conv2d_transpose",
        _as_2d(builder, x),
        _as_2d(builder, weight),
        strides=two(strides, 1),
        padding=two(cut[:rank], 0) + two(cut[rank:], 0),
        output_padding=two(extra, 0),
        dilation=two(dilation, 1),
        groups=node.integer("group", 1),
    )
    if any(grown):
        sides = ((0, 0, *two(grown[:rank], 0)), (0, 0, *two(grown[rank:], 0)))
        result = builder.emit(
            "pad", result, before=sides[0], after=sides[1], value=0.0, mode="constant"
        )
    return _restore(builder, _with_bias(builder, result, node.input(2)), len(shape))


def _transposed_padding(
    node: OnnxNode, extent: tuple[int, ...], kernel: tuple[int, ...], extra: tuple[int, ...]
) -> tuple[int, ...]:
    """Padding before and after, from `output_shape` or `auto_pad` where given.

    Source: the ONNX operator specification, ConvTranspose.
    """
    rank = len(kernel)
    strides = node.integers("strides") or (1,) * rank
    dilation = node.integers("dilations") or (1,) * rank
    automatic = node.text("auto_pad", "NOTSET")
    wanted = node.integers("output_shape")[-rank:]
    if not wanted and automatic in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * stride for size, stride in zip(extent, strides, strict=True))
    if not wanted:
        given = () if automatic == "VALID" else node.integers("pads")
        return given or (0,) * (2 * rank)
    totals = [
        strides[i] * (extent[i] - 1) + extra[i] + (kernel[i] - 1) * dilation[i] + 1 - wanted[i]
        for i in range(rank)
    ]
    cut = [max(0, total) for total in totals]
    small, large = tuple(t // 2 for t in cut), tuple(t - t // 2 for t in cut)
    before, after = (small, large) if automatic == "SAME_UPPER" else (large, small)
    # what is wanted beyond the last element that anything reaches lies behind it
    return before + tuple(min(total, side) for total, side in zip(totals, after, strict=True))
