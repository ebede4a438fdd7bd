"""Resizing, sampling, and boxes."""

from __future__ import annotations

from tilewright.compiler.relax_export.calls import (
    Call,
    Value,
    translates,
)
from tilewright.compiler.relax_export.convolutions import turned
from tilewright.compiler.relax_export.writer import refuse

_RESIZED = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}

_ROUNDED = {"round": "round_prefer_ceil", "": "round_prefer_floor"}


@translates("image.resize2d")
def resize(call: Call) -> Value:
    """To another height and width."""
    layout, method = call.attribute("layout"), _RESIZED.get(call.attribute("method"))
    where, exclude = (
        call.attribute("coordinate_transformation_mode"),
        call.attribute("cubic_exclude"),
    )
    if method is None or where == "tf_crop_and_resize":
        raise refuse(f"{call.attribute('method')} with {where} is not taken")
    data = turned(call, call[0], layout, "NCHW")
    front = call.node("Shape", data, end=2)
    rounding = call.attribute("rounding_method")
    nearest = {"nearest_mode": _ROUNDED.get(rounding, rounding)} if method == "nearest" else {}
    cubic = {"cubic_coeff_a": call.attribute("cubic_alpha"), "exclude_outside": exclude}
    result = call.node(
        "Resize",
        data,
        "",
        "",
        call.node("Concat", front, call[1], axis=0),
        mode=method,
        coordinate_transformation_mode=where,
        **nearest,
        **(cubic if method == "cubic" else {}),
    )
    return turned(call, result, "NCHW", layout)


@translates("image.grid_sample")
def grid_sample(call: Call) -> Value:
    """Read where a grid of places says, [batch, 2, height, width]."""
    if call.attribute("layout") != "NCHW":
        raise refuse(f"the layout {call.attribute('layout')} is not taken")
    method = call.attribute("method")
    return call.node(
        "GridSample",
        call[0],
        call.node("Transpose", call[1], perm=[0, 2, 3, 1]),
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(method, method),
        padding_mode=call.attribute("padding_mode"),
        align_corners=int(call.attribute("align_corners")),
    )


@translates("vision.all_class_non_max_suppression")
def non_max_suppression(call: Call) -> Value:
    """Which boxes stay, and how many: all that ONNX tells are real ones."""
    if call.attribute("output_format") != "onnx":
        raise refuse("only its output format of ONNX is taken")
    limits = [call.node("Reshape", call[place], [1]) for place in (2, 3, 4)]
    kept = call.node("NonMaxSuppression", call[0], call[1], *limits)
    call.writer.padded.add(kept)
    return [kept, call.node("Shape", kept, end=1)]


@translates("nn.pixel_shuffle")
def pixel_shuffle(call: Call) -> Value:
    """Channels become rows and columns."""
    size = call.attribute("upscale_factor")
    return call.node("DepthToSpace", call[0], blocksize=size, mode="CRD")
