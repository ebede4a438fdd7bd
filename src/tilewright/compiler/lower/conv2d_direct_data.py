"""What the tiles of the direct convolution read: the input with its border, or clamped."""

from __future__ import annotations

from tvm import te, tirx

from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value
from tilewright.kernels.conv2d_direct_knobs import data_block
from tilewright.kernels.convolution import Convolution


def source(program: Program, conv: Convolution, plane: tuple[int, int]) -> Value:
    """The input as whole tiles read it: with its border of zeros as the stage `padded`, or with
    the surplus clamped to the last row and column."""
    data = program.operand(conv.data)
    reach = [
        (extent - 1) * stride + (kernel - 1) * dilation + 1
        for extent, stride, kernel, dilation in zip(
            plane, conv.strides, conv.kernel, conv.dilation, strict=True
        )
    ]
    if conv.padded:
        return _padded(program, conv, (reach[0], reach[1]))
    last = (conv.in_height - 1, conv.in_width - 1)
    if all(extent - 1 <= end for extent, end in zip(reach, last, strict=True)):
        return data

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        if reach[0] - 1 > last[0]:
            y = tirx.min(y, tirx.const(last[0], "int32"))
        if reach[1] - 1 > last[1]:
            x = tirx.min(x, tirx.const(last[1], "int32"))
        return data.read([n, c, y, x])

    return Value(type=data.type, read=read)


def _padded(program: Program, conv: Convolution, reach: tuple[int, int]) -> Value:
    data = program.operand(conv.data)
    top, left = conv.padding[:2]
    n, c, h, w = data.type.shape
    block = data_block(conv, program.candidate.forms) or int(
        dict(program.candidate.settings)["in_block"]
    )
    physical = (n, c // block, *reach, block)

    def compute(n, chunk, y, x, lane):
        program.simplify.announce([n, chunk, y, x, lane], physical)
        inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        value = data.read([n, chunk * block + lane, y - top, x - left])
        return tirx.if_then_else(inside, value, tirx.const(0, data.type.dtype))

    stage = te.compute(physical, compute, name="padded")

    def read(position: Index) -> tirx.Expr:
        n, c, y, x = position
        chunk = program.simplify(tirx.floordiv(c, block))
        return stage(n, chunk, y, x, program.simplify(tirx.floormod(c, block)))

    return Value(type=data.type, read=read)
