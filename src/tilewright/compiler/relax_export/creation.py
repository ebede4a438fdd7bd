"""Tensors that are made: of one number, of steps, and of shapes."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from tilewright.compiler.relax_export.calls import (
    Call,
    Translation,
    Value,
    sizes_of,
    translates,
    translations,
)
from tilewright.compiler.relax_export.writer import refuse, scalar


@translates("full", "zeros", "ones", "full_like", "zeros_like", "ones_like")
def full(call: Call) -> Value:
    """One number in a shape, which is given or that of a tensor."""
    name = call.call.op.name.removeprefix("relax.")
    shape = call.node("Shape", call[0]) if name.endswith("_like") else call[0]
    dtype = call.attribute("dtype") or call.dtype()
    if name.startswith("full"):
        return call.node("Expand", call.in_type(call[1], dtype), shape)
    return call.node("Expand", scalar(float(name.startswith("ones")), dtype), shape)


@translates("meshgrid")
def meshgrid(call: Call) -> Value:
    """Each of several vectors along an axis of its own."""
    shape = sizes_of(call.call.ty.fields[0])
    last = len(shape) - 1
    if call.attribute("indexing") != "ij":
        raise refuse("only the indexing 'ij' is taken: of others Relax tells another shape")
    target = call.writer.shape(shape)
    return [
        call.node("Expand", call.node("Reshape", part, [-1] + [1] * (last - axis)), target)
        for axis, part in enumerate(call.several)
    ]


@translates("tril", "triu")
def triangle(call: Call) -> Value:
    """Zeros above or below a diagonal."""
    upper = int(call.call.op.name == "relax.triu")
    return call.node("Trilu", call[0], np.int64(_diagonal(call)).reshape(()), upper=upper)


def _diagonal(call: Call) -> int:
    return int(call.argument(1) if len(call.call.args) > 1 else call.attribute("k"))


@translates("eye")
def eye(call: Call) -> Value:
    """Ones on a diagonal."""
    rows, columns, diagonal = (call.argument(place) for place in range(3))
    return call.writer.constant(
        np.eye(rows, columns, diagonal).astype(scalar(0, call.attribute("dtype")).dtype)
    )


@translates("arange")
def arange(call: Call) -> Value:
    """Numbers in equal steps."""
    dtype = call.attribute("dtype")
    if all(isinstance(each, (tirx.IntImm, tirx.FloatImm)) for each in call.call.args):
        numbers = np.arange(*(call.argument(place) for place in range(3)))
        return call.writer.constant(numbers.astype(scalar(0, dtype).dtype))
    ends = [call.node("Squeeze", call.writer.size(each), [0]) for each in call.call.args]
    return call.in_type(call.node("Range", *ends), dtype)


_FORMULAS: dict[str, Translation] = {
    "shape_of": lambda call: call.node("Shape", call[0]),
    "size": lambda call: call.node("Size", call[0]),
}
translations(_FORMULAS)
