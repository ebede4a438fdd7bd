"""Tasks of attention on codes."""

from __future__ import annotations

from typing import NamedTuple

from helpers.kernels.one_kernel import step
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload


class Extents(NamedTuple):
    """Of an attention."""

    batch: int = 1
    heads: int = 2
    key_heads: int = 2
    queries: int = 17
    keys: int = 37
    depth: int = 16
    width: int = 24


def attention_on_codes(
    extents: Extents,
    dtypes: tuple[str, str, str],
    *,
    codings: int = 2,
    masked: int = -1,
    bare: bool = False,
) -> Workload:
    """With so many codings, a mask of keys behind one of their factors, and requantized unless it
    is `bare`."""
    batch, heads, key_heads, queries, keys, depth, width = extents
    shapes = [(queries, heads * depth), (keys, key_heads * depth), (keys, key_heads * width)]
    arguments = [
        Argument(type=TensorType((batch, *shape), dtype))
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    for kind in (TensorType((codings, 4)), TensorType((3,), "int32")):
        arguments.append(Argument(type=kind, role="constant"))
    if masked >= 0:
        arguments.append(Argument(type=TensorType((batch, 1, 1, keys))))
    read = range(len(arguments))
    named = {"heads": heads, "key_heads": key_heads, "masked": masked}
    steps = [step("quantized_attention", *read, **named)]
    if not bare:
        arguments.append(Argument(type=TensorType(()), role="constant"))
        at = len(arguments)
        steps += [
            step("cast", at, dtype="float32"), step("multiply", at + 1, at - 1),
            step("round", at + 2), step("clip", at + 3, minimum=-128.0, maximum=127.0),
            step("cast", at + 4, dtype="int8"),
        ]  # fmt: skip
    return Workload(arguments=tuple(arguments), steps=tuple(steps))
