"""Operators that move elements: views, joins and cuts."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tilewright.compiler.relax_export.calls import (
    Call,
    Translation,
    Value,
    sizes_of,
    translates,
    translations,
)
from tilewright.compiler.relax_export.writer import refuse

_END = np.iinfo(np.int64).max


@translates("permute_dims")
def permute_dims(call: Call) -> Value:
    """Axes in another order, turned around where none is given."""
    order = call.attribute("axes") or [*range(call.rank())][::-1]
    return call.node("Transpose", call[0], perm=[axis % call.rank() for axis in order])


@translates("reshape", "memory.view")
def reshape(call: Call) -> Value:
    """The same elements in another shape; a size of 0 is one, and not that of the operand."""
    if call.call.op.name == "relax.memory.view" and any(call.values[2:]):
        raise refuse("a view of another type or from the middle is not taken")
    return call.node("Reshape", call[0], call[1], allowzero=1)


@translates("flatten", "nn.batch_flatten")
def flatten(call: Call) -> Value:
    """All axes in one, or all behind the first."""
    alone = call.call.op.name == "relax.flatten"
    return call.node("Reshape", call[0], [-1]) if alone else call.node("Flatten", call[0], axis=1)


@translates("squeeze")
def squeeze(call: Call) -> Value:
    """Without axes of one, or without all of them."""
    axes = call.attribute("axis")
    ones = [place for place, size in enumerate(call.shape()) if size == 1] if axes is None else axes
    return call.node("Squeeze", call[0], ones) if ones else call[0]


@translates("concat")
def concat(call: Call) -> Value:
    """One behind the other along an axis; without one, all elements."""
    axis = call.attribute("axis")
    parts = call.several
    if axis is None:
        parts, axis = [call.node("Reshape", part, [-1]) for part in parts], 0
    return call.node("Concat", *parts, axis=axis)


@translates("stack")
def stack(call: Call) -> Value:
    """Along a new axis."""
    axis = call.attribute("axis") or 0
    return call.node(
        "Concat", *(call.node("Unsqueeze", p, [axis]) for p in call.several), axis=axis
    )


@translates("split")
def split(call: Call) -> Value:
    """Cut along an axis."""
    axis, fields = call.axis(), call.call.ty.fields
    sizes = call.writer.shape(sizes_of(field)[axis] for field in fields)
    return list(call.writer.several("Split", len(fields), call[0], sizes, axis=axis))


@translates("repeat")
def repeat(call: Call) -> Value:
    """Each element several times in a row."""
    axis, times = call.attribute("axis"), call.attribute("repeats")
    value, rank = (
        (call[0], call.rank()) if axis is not None else (call.node("Reshape", call[0], [-1]), 1)
    )
    place = (axis or 0) % rank
    many = [1] * (rank + 1)
    many[place + 1] = times
    tiled = call.node("Tile", call.node("Unsqueeze", value, [place + 1]), many)
    return call.node("Reshape", tiled, call.writer.shape(sizes_of(call.call.ty)))


@translates("tile")
def tile(call: Call) -> Value:
    """The whole several times, with axes in front where more are given."""
    times = call.attribute("repeats")
    more = len(times) - call.rank()
    value = call.node("Unsqueeze", call[0], [*range(more)]) if more > 0 else call[0]
    return call.node("Tile", value, [1] * -more + times)


@translates("strided_slice")
def strided_slice(call: Call) -> Value:
    """From here to there in steps, along some axes."""
    begin, end, steps = (_places(call, place) for place in (2, 3, 4))
    axes = [int(axis) for axis in call.call.args[1].fields]
    return call.node("Slice", call[0], begin, end, axes, steps or [1] * len(axes))


def _places(call: Call, place: int) -> str:
    """An argument with places as a tensor, empty where it is left out."""
    if len(call.values) <= place:
        return ""
    given = call.call.args[place]
    return call.writer.shape(given.fields) if isinstance(given, relax.Tuple) else call[place]


@translates("dynamic_strided_slice")
def dynamic_strided_slice(call: Call) -> Value:
    """The same along the first axes, with places that are computed."""
    count = sizes_of(call.kind(1))[0]
    return call.node("Slice", call[0], call[1], call[2], [*range(int(count))], call[3])


@translates("nn.pad")
def pad(call: Call) -> Value:
    """With more elements around it."""
    width, mode = call.attribute("pad_width"), call.attribute("pad_mode")
    mode = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    value = [call.number(call.attribute("pad_value"))] if mode == "constant" else []
    return call.node("Pad", call[0], [*width[::2], *width[1::2]], *value, mode=mode)


_FORMULAS: dict[str, Translation] = {
    "expand_dims": lambda call: call.node("Unsqueeze", call[0], call.attribute("axis")),
    "broadcast_to": lambda call: call.node("Expand", call[0], call[1]),
    "flip": lambda call: call.node("Slice", call[0], [-1], [-_END], [call.axis()], [-1]),
}
translations(_FORMULAS)
