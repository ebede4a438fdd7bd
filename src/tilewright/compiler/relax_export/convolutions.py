"""Convolutions, in any order of axes."""

from __future__ import annotations

from tilewright.compiler.relax_export.calls import Call, Value, translates
from tilewright.compiler.relax_export.writer import refuse

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def turned(call: Call, value: str, given: str, wanted: str) -> str:
    """A tensor with the axes of one layout in the order of another."""
    if given == wanted:
        return value
    if sorted(given) != sorted(wanted):
        raise refuse(f"the layout {given} is not taken")
    return call.node("Transpose", value, perm=[given.index(axis) for axis in wanted])


def from_channels(call: Call, value: str, layout: str, out_layout: str) -> str:
    """A result in the layout that a call asks for."""
    wanted = out_layout or layout
    return turned(call, value, planes_of(layout), wanted)


def planes_of(layout: str) -> str:
    """ONNX's layout of the axes of another one: batch, channels, space."""
    return "NC" + _SPACE.get(len(layout) - 2, layout)


@translates("nn.conv1d", "nn.conv2d", "nn.conv3d")
def conv(call: Call) -> Value:
    """A convolution; of codes, the sums are exact."""
    layout, kernel = call.attribute("data_layout"), call.attribute("kernel_layout")
    data = turned(call, call[0], layout, planes_of(layout))
    weight = turned(call, call[1], kernel, "OI" + planes_of(layout)[2:])
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
    return from_channels(call, result, layout, call.attribute("out_layout"))


CODES = ("int8", "uint8")


def sums(call: Call, result: str) -> str:
    """A product's result in the type that a call asks for."""
    out = str(call.call.ty.dtype)
    return result if out == call.dtype() else call.in_type(result, out)


@translates("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(call: Call) -> Value:
    """A convolution that spreads its input."""
    layout, kernel = call.attribute("data_layout"), call.attribute("kernel_layout")
    data = turned(call, call[0], layout, planes_of(layout))
    weight = turned(call, call[1], kernel, "IO" + planes_of(layout)[2:])
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
    return from_channels(call, sums(call, result), layout, call.attribute("out_layout"))
