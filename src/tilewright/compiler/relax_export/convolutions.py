"""Convolutions and pooling, in any order of axes."""

from __future__ import annotations

from tilewright.compiler.relax_export.calls import (
    Call,
    Value,
    translates,
)
from tilewright.compiler.relax_export.writer import refuse

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def turned(call: Call, value: str, given: str, wanted: str) -> str:
    """A tensor with the axes of one layout in the order of another."""
    if given == wanted:
        return value
    if sorted(given) != sorted(wanted):
        raise refuse(f"the layout {given} is not taken")
    return call.node("Transpose", value, perm=[given.index(axis) for axis in wanted])


def _from_channels(call: Call, value: str, layout: str, out_layout: str) -> str:
    """A result in the layout that a call asks for."""
    wanted = out_layout or layout
    return turned(call, value, _planes(layout), wanted)


def _planes(layout: str) -> str:
    """ONNX's layout of the axes of another one: batch, channels, space."""
    return "NC" + _SPACE.get(len(layout) - 2, layout)


@translates("nn.conv1d", "nn.conv2d", "nn.conv3d")
def conv(call: Call) -> Value:
    """A convolution; of codes, the sums are exact."""
    layout, kernel = call.attribute("data_layout"), call.attribute("kernel_layout")
    data = turned(call, call[0], layout, _planes(layout))
    weight = turned(call, call[1], kernel, "OI" + _planes(layout)[2:])
    named = {
        "strides": call.attribute("strides"),
        "pads": call.attribute("padding"),
        "dilations": call.attribute("dilation"),
        "group": call.attribute("groups"),
    }
    out = str(call.call.ty.dtype)
    codes = call.dtype() in CODES and out == "int32"
    result = call.node("ConvInteger" if codes else "Conv", data, weight, **named)
    result = result if codes else sums(call, result)
    return _from_channels(call, result, layout, call.attribute("out_layout"))


CODES = ("int8", "uint8")


def sums(call: Call, result: str) -> str:
    """A product's result in the type that a call asks for."""
    out = str(call.call.ty.dtype)
    return result if out == call.dtype() else call.in_type(result, out)


@translates("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(call: Call) -> Value:
    """A convolution that spreads its input."""
    layout, kernel = call.attribute("data_layout"), call.attribute("kernel_layout")
    data = turned(call, call[0], layout, _planes(layout))
    weight = turned(call, call[1], kernel, "IO" + _planes(layout)[2:])
    result = call.node(
        "ConvTranspose",
        data,
        weight,
        strides=call.attribute("strides"),
        pads=call.attribute("padding"),
        dilations=call.attribute("dilation"),
        output_padding=call.attribute("output_padding"),
        group=call.attribute("groups"),
    )
    return _from_channels(call, sums(call, result), layout, call.attribute("out_layout"))


@translates(*(f"nn.{kind}_pool{axes}d" for kind in ("max", "avg") for axes in (1, 2, 3)))
def pool(call: Call) -> Value:
    """The largest, or the mean, of each window."""
    layout, mean = call.attribute("layout"), "avg" in call.call.op.name
    named = {"count_include_pad": int(call.attribute("count_include_pad"))} if mean else {}
    result = call.node(
        "AveragePool" if mean else "MaxPool",
        turned(call, call[0], layout, _planes(layout)),
        kernel_shape=call.attribute("pool_size"),
        strides=call.attribute("strides"),
        pads=call.attribute("padding"),
        dilations=call.attribute("dilation"),
        ceil_mode=int(call.attribute("ceil_mode")),
        **named,
    )
    return _from_channels(call, result, layout, call.attribute("out_layout"))


@translates("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def adaptive_pool(call: Call) -> Value:
    """Means of windows that divide the input evenly."""
    layout, sizes = call.attribute("layout"), call.shape()
    planes = _planes(layout)
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
    return _from_channels(call, result, layout, call.attribute("out_layout"))
