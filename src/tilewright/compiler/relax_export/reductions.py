"""Reductions over axes, and running sums."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.relax_export.calls import (
    Call,
    Value,
    translates,
)

_REDUCED = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin",
            "prod": "ReduceProd"}  # fmt: skip


@translates(*_REDUCED)
def reduced(call: Call) -> Value:
    """Over some axes, or all."""
    return _over_axes(call, _REDUCED[call.call.op.name.removeprefix("relax.")], call[0], last=True)


def _over_axes(call: Call, operator: str, value: str, *, last: bool) -> str:
    """A reduction; before the `last` one the axes stay."""
    axes, kept = call.attribute("axis"), call.attribute("keepdims") or not last
    axes = [*range(call.rank())] if axes is None else axes
    return call.node(operator, value, axes, keepdims=int(kept)) if axes else value


@translates("variance", "std")
def variance(call: Call) -> Value:
    """The mean square of what is left of the mean."""
    apart = call.node("Sub", call[0], _over_axes(call, "ReduceMean", call[0], last=False))
    square_ = _over_axes(call, "ReduceMean", call.node("Mul", apart, apart), last=True)
    return call.node("Sqrt", square_) if call.call.op.name == "relax.std" else square_


@translates("argmax", "argmin")
def argmax(call: Call) -> Value:
    """The first place of the largest or smallest."""
    operator = "ArgMax" if call.call.op.name == "relax.argmax" else "ArgMin"
    kept, axis = int(call.attribute("keepdims")), call.attribute("axis")
    if axis is not None:
        return call.node(operator, call[0], axis=axis, keepdims=kept)
    place = call.node(operator, call.node("Reshape", call[0], [-1]), axis=0, keepdims=0)
    return call.node("Reshape", place, [1] * call.rank()) if kept else place


@translates("cumsum")
def cumsum(call: Call) -> Value:
    """A running sum along an axis, or of all elements in their order."""
    axis, dtype = call.attribute("axis"), call.attribute("dtype")
    value = call[0] if axis is not None else call.node("Reshape", call[0], [-1])
    value = call.in_type(value, dtype) if dtype not in (None, call.dtype()) else value
    exclusive = int(call.attribute("exclusive") or 0)
    return call.node("CumSum", value, np.int64([axis or 0])[0:1].reshape(()), exclusive=exclusive)
