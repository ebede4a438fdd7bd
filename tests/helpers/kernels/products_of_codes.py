"""Batched products of codes, with what zero points and requantizing add to them."""

from __future__ import annotations

from helpers.kernels.one_kernel import step
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload


def products(left, right, dtypes, *, transposed: bool = False, bare: bool = True) -> Workload:
    """Bare sums, or less a number for each row and requantized to unsigned bytes. Unsigned right
    matrices become signed ones on their way in."""
    arguments = [
        Argument(type=TensorType(s, t)) for s, t in zip((left, right), dtypes, strict=True)
    ]
    if not bare:
        arguments.append(Argument(type=TensorType((*left[:-1], 1), "int32")))
        arguments.append(Argument(type=TensorType(())))
    if dtypes[1] == "uint8":
        arguments.append(Argument(type=TensorType((), "int32")))
    steps, weight, at = [], 1, len(arguments)
    if dtypes[1] == "uint8":
        steps += [
            step("cast", 1, dtype="int32"), step("subtract", at, at - 1),
            step("cast", at + 1, dtype="int8"),
        ]  # fmt: skip
        weight, at = at + 2, at + 3
    steps.append(step("batch_matmul", 0, weight, transpose_b=transposed))
    if not bare:
        steps += [
            step("subtract", at, 2), step("cast", at + 1, dtype="float32"),
            step("multiply", at + 2, 3), step("round", at + 3),
            step("clip", at + 4, minimum=0.0, maximum=255.0), step("cast", at + 5, dtype="uint8"),
        ]  # fmt: skip
    return Workload(arguments=tuple(arguments), steps=tuple(steps))
