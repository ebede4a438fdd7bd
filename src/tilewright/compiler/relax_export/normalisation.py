"""Norms and softmax."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.relax_export.calls import (
    Call,
    Value,
    translates,
)
from tilewright.compiler.relax_export.writer import refuse


@translates("nn.batch_norm")
def batch_norm(call: Call) -> Value:
    """With the statistics that are given, as always in inference; these are the other results."""
    axis, order = call.axis(), [*range(call.rank())]
    order.insert(1, order.pop(axis))
    data = call[0] if axis == 1 else call.node("Transpose", call[0], perm=order)
    given = [_given(call, 1, "scale", 1.0), _given(call, 2, "center", 0.0)]
    epsilon = call.attribute("epsilon")
    result = call.node("BatchNormalization", data, *given, call[3], call[4], epsilon=epsilon)
    back = [order.index(place) for place in range(len(order))]
    return [result if axis == 1 else call.node("Transpose", result, perm=back), call[3], call[4]]


def _given(call: Call, place: int, switch: str, otherwise: float) -> str:
    """A factor or summand where it is switched on."""
    if call.attribute(switch):
        return call[place]
    return call.writer.constant(np.full(call.fixed(place), otherwise, call.dtype(place)))


def _axes(call: Call) -> list[int]:
    listed = call.attribute("axes")
    return sorted(axis % call.rank() for axis in listed)


@translates("nn.layer_norm")
def layer_norm(call: Call) -> Value:
    """Over the last axes, or over any."""
    axes, epsilon = _axes(call), call.attribute("epsilon")
    if axes == [*range(axes[0], call.rank())]:
        named = {"axis": axes[0], "epsilon": epsilon}
        return call.node("LayerNormalization", call[0], call[1], call[2], **named)
    apart = call.node("Sub", call[0], call.node("ReduceMean", call[0], axes))
    scaled = call.node("Div", apart, call.node("Sqrt", _second_moment(call, apart, axes)))
    factor, summand = (_along(call, place, axes) for place in (1, 2))
    return call.node("Add", call.node("Mul", scaled, factor), summand)


@translates("nn.rms_norm")
def rms_norm(call: Call) -> Value:
    """Divided by the root of the mean square."""
    axes = _axes(call)
    root = call.node("Sqrt", _second_moment(call, call[0], axes))
    return call.node("Mul", call.node("Div", call[0], root), _along(call, 1, axes))


def _second_moment(call: Call, value: str, axes: list[int]) -> str:
    """The mean square, and epsilon."""
    mean = call.node("ReduceMean", call.node("Mul", value, value), axes)
    return call.node("Add", mean, call.number(call.attribute("epsilon")))


def _along(call: Call, place: int, axes: list[int]) -> str:
    """A factor for places of some axes, with axes of one where the others are."""
    others = [axis for axis in range(axes[0], call.rank()) if axis not in axes]
    at = [axis - axes[0] for axis in others]
    return call.node("Unsqueeze", call[place], at) if at else call[place]


@translates("nn.group_norm", "nn.instance_norm")
def group_norm(call: Call) -> Value:
    """Over groups of channels, or over each, and all that is behind them."""
    channels, behind = call.axis("channel_axis"), [*range(2, call.rank())]
    if channels != 1 or _axes(call) not in (behind, [1, *behind]):
        raise refuse(f"axes {_axes(call)} with channels on axis {channels} are not taken")
    named = {"epsilon": call.attribute("epsilon")}
    if call.call.op.name == "relax.nn.instance_norm":
        return call.node("InstanceNormalization", call[0], call[1], call[2], **named)
    named["num_groups"] = call.attribute("num_groups")
    return call.node("GroupNormalization", call[0], call[1], call[2], **named)


@translates("nn.softmax", "nn.log_softmax")
def softmax(call: Call) -> Value:
    """Along one axis."""
    operator = "Softmax" if call.call.op.name == "relax.nn.softmax" else "LogSoftmax"
    return call.node(operator, call[0], axis=call.attribute("axis"))
