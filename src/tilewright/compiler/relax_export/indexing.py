"""Reads and writes by index, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.relax_export.calls import (
    Call,
    Translation,
    Value,
    dtype_of,
    sizes_of,
    translates,
    translations,
)
from tilewright.compiler.relax_export.writer import refuse, scalar


@translates("slice_scatter")
def slice_scatter(call: Call) -> Value:
    """With another tensor in the place of what a slice would read."""
    axis, size = call.axis(), call.shape()[call.axis()]
    begin, end, step = (call.argument(place) for place in (2, 3, 4))
    places = np.arange(int(size))[begin:end:step]
    shape = [1] * call.rank()
    shape[axis] = len(places)
    indices = call.node("Expand", places.reshape(shape), call.node("Shape", call[1]))
    return call.node("ScatterElements", call[0], indices, call[1], axis=axis)


@translates("take")
def take(call: Call) -> Value:
    """Read along an axis, or of all elements."""
    axis, mode, indices = call.attribute("axis"), call.attribute("mode"), call[1]
    value = call[0] if axis is not None else call.node("Reshape", call[0], [-1])
    size = call.node("Shape", value, start=(axis or 0) % max(call.rank(), 1))
    size = call.node("Slice", size, [0], [1]) if mode in ("clip", "wrap") else size
    if mode == "clip":
        indices = call.in_type(indices, "int64")
        last = call.node("Sub", call.node("Squeeze", size), 1)
        indices = call.node("Clip", indices, 0, last)
    if mode == "wrap":
        indices = call.node("Mod", call.in_type(indices, "int64"), call.node("Squeeze", size))
    return call.node("Gather", value, indices, axis=axis or 0)


def _int64(call: Call, place: int) -> str:
    return call[place] if call.dtype(place) == "int64" else call.in_type(call[place], "int64")


_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@translates("scatter_elements", "scatter_nd")
def scatter(call: Call) -> Value:
    """Write along an axis, or at places along the first axes."""
    reduction = call.attribute("reduction")
    if reduction not in _REDUCTIONS:
        raise refuse(f"the reduction {reduction} is not taken")
    alone = call.call.op.name == "relax.scatter_elements"
    axis = {"axis": call.attribute("axis")} if alone else {}
    operator = "ScatterElements" if alone else "ScatterND"
    given = (call[0], _int64(call, 1), call[2])
    return call.node(operator, *given, reduction=_REDUCTIONS[reduction], **axis)


@translates("index_tensor", "index_put")
def index(call: Call) -> Value:
    """Read or write where several tensors say, one for each of the first axes."""
    listed = call.values[1]
    indices, kinds = (
        (listed, call.kind(1).fields) if isinstance(listed, list) else ([listed], [call.kind(1)])
    )
    shape = list(np.broadcast_shapes(*(tuple(int(s) for s in sizes_of(kind)) for kind in kinds)))
    whole = [
        call.node("Expand", _counted(call, str(value), kind, axis), shape)
        for axis, (value, kind) in enumerate(zip(indices, kinds, strict=True))
    ]
    last = [len(shape)]
    places = call.node("Concat", *(call.node("Unsqueeze", w, last) for w in whole), axis=len(shape))
    if call.call.op.name == "relax.index_tensor":
        return call.node("GatherND", call[0], places)
    rest = call.fixed()[len(whole) :]
    values = call.node("Expand", call[2], [*shape, *rest])
    reduction = "add" if call.attribute("accumulate") else "none"
    return call.node("ScatterND", call[0], places, values, reduction=reduction)


def _counted(call: Call, value: str, kind: Any, axis: int) -> str:
    """Indices as int64, those below zero counted from the end."""
    if "int" not in dtype_of(kind):
        raise refuse(f"indices of type {dtype_of(kind)} are not taken")
    whole = call.in_type(value, "int64")
    size = call.node("Squeeze", call.node("Shape", call[0], start=axis, end=axis + 1), [0])
    return call.node("Where", call.node("Less", whole, 0), call.node("Add", whole, size), whole)


@translates("one_hot")
def one_hot(call: Call) -> Value:
    """One value at an index, another one elsewhere."""
    dtype = str(call.call.ty.dtype)
    values = np.stack([scalar(call.argument(place), dtype) for place in (2, 1)])
    named = {"axis": call.attribute("axis")}
    return call.node(
        "OneHot", call[0], np.int64(call.attribute("depth")).reshape(()), values, **named
    )


@translates("topk")
def topk(call: Call) -> Value:
    """The largest or smallest along an axis, sorted."""
    largest, kind = call.attribute("largest"), call.attribute("ret_type")
    found = _sorted(call, [call.attribute("k")], largest=largest)
    return {"both": [*found], "values": found[0], "indices": found[1]}[kind]


@translates("sort", "argsort")
def sort(call: Call) -> Value:
    """All along an axis, or their places."""
    axis = call.axis()
    length = call.node("Shape", call[0], start=axis, end=axis + 1)
    found = _sorted(call, length, largest=call.attribute("descending"))
    return found[0] if call.call.op.name == "relax.sort" else found[1]


def _sorted(call: Call, count: Any, *, largest: bool) -> tuple[str, str]:
    """Values and places, these in the type that a call asks for."""
    named = {"axis": call.axis(), "largest": int(largest), "sorted": 1}
    values, places = call.writer.several("TopK", 2, call[0], count, **named)
    named_type = call.call.op.name == "relax.sort"
    return values, places if named_type else call.in_type(places, call.attribute("dtype"))


_FORMULAS: dict[str, Translation] = {
    "gather_elements": lambda call: call.node(
        "GatherElements", call[0], _int64(call, 1), axis=call.attribute("axis")
    ),
    "gather_nd": lambda call: call.node(
        "GatherND", call[0], _int64(call, 1), batch_dims=call.attribute("batch_dims")
    ),
    "nonzero": lambda call: call.node("NonZero", call[0]),
}
translations(_FORMULAS)
