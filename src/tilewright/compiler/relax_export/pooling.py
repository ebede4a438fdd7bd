"""Pooling, in any order of axes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from tilewright.compiler.relax_export.calls import Call, Value, sizes_of, translates
from tilewright.compiler.relax_export.convolutions import from_channels, planes_of, turned
from tilewright.compiler.relax_export.writer import refuse


@translates(*(f"nn.{kind}_pool{axes}d" for kind in ("max", "avg") for axes in (1, 2, 3)))
def pool(call: Call) -> Value:
    """The largest, or the mean, of each window."""
    layout, mean = call.attribute("layout"), "avg" in call.call.op.name
    all_count = {"count_include_pad": int(call.attribute("count_include_pad"))} if mean else {}
    data = turned(call, call[0], layout, planes_of(layout))
    operator = "AveragePool" if mean else "MaxPool"
    named = {
        "kernel_shape": call.attribute("pool_size"),
        "strides": call.attribute("strides"),
        "dilations": call.attribute("dilation"),
    }
    pads, ends = call.attribute("padding"), _ends(call, layout, named)
    if ends is None:
        ceil_mode = int(call.attribute("ceil_mode"))
        result = call.node(operator, data, pads=pads, ceil_mode=ceil_mode, **named, **all_count)
    elif all(end < size for end, size in zip(ends, named["kernel_shape"], strict=True)):
        pads = [*pads[: len(ends)], *ends]
        result = call.node(operator, data, pads=pads, **named, **all_count)
    else:
        begins = pads[: len(ends)]
        value = call.number(0 if mean else _lowest(call.dtype()))
        padded = call.node("Pad", data, [0, 0, *begins, 0, 0, *ends], value)
        result = call.node(operator, padded, **named)
        if all_count == {"count_include_pad": 0}:
            result = call.node("Mul", result, _shares(call, layout, named))
    return from_channels(call, result, layout, call.attribute("out_layout"))


def _space(sizes: list[Any], layout: str) -> list[Any]:
    """The sizes along the axes of space, in their order."""
    return [sizes[layout.index(axis)] for axis in planes_of(layout)[2:]]


def _ends(call: Call, layout: str, named: dict[str, Any]) -> list[int] | None:
    """The padding behind the last elements that gives as many windows as Relax has, which counts
    those that begin in it, too; None where sizes are free or numbers are rounded down."""
    if not call.attribute("ceil_mode"):
        return None
    before = _space(call.shape(), layout)
    after = _space(sizes_of(call.call.ty), call.attribute("out_layout") or layout)
    if not all(isinstance(size, int) for size in (*before, *after)):
        return None
    windows = zip(named["kernel_shape"], named["strides"], named["dilations"], strict=True)
    begins = call.attribute("padding")
    return [
        max(0, (a - 1) * stride + dilation * (size - 1) + 1 - b - begin)
        for a, b, begin, (size, stride, dilation) in zip(
            after, before, begins, windows, strict=False
        )
    ]


def _lowest(dtype: str) -> float:
    return np.iinfo(dtype).min if "int" in dtype else float(np.finfo(dtype).min)


def _shares(call: Call, layout: str, named: dict[str, Any]) -> np.ndarray:
    """How many elements a window has for each of them that is no padding."""
    before = _space(call.shape(), layout)
    after = _space(sizes_of(call.call.ty), call.attribute("out_layout") or layout)
    shares: list[np.ndarray] = []
    for axis, (size, stride, dilation) in enumerate(zip(*named.values(), strict=True)):
        first = np.arange(after[axis]) * stride - call.attribute("padding")[axis]
        places = first[:, None] + dilation * np.arange(size)
        count = ((places >= 0) & (places < before[axis])).sum(axis=1)
        shares.append(size / np.maximum(count, 1))
    whole = reduce(np.multiply.outer, shares)
    return whole.astype(call.number(0).dtype)


@translates("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def adaptive_pool(call: Call) -> Value:
    """Means of windows that divide the input evenly."""
    layout, sizes = call.attribute("layout"), call.shape()
    planes = planes_of(layout)
    data = turned(call, call[0], layout, planes)
    before = [sizes[layout.index(axis)] for axis in planes[2:]]
    after = call.attribute("output_size") or before
    if all(size == 1 for size in after):
        result = call.node("GlobalAveragePool", data)
    else:
        even = all(isinstance(b, int) and b % a == 0 for b, a in zip(before, after, strict=True))
        if not even:
            raise refuse(f"windows from {before} to {after} are not all of one size")
        window = [b // a for b, a in zip(before, after, strict=True)]
        result = call.node("AveragePool", data, kernel_shape=window, strides=window)
    return from_channels(call, result, layout, call.attribute("out_layout"))
