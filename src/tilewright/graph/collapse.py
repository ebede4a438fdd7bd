"""Rewrite of pointwise workloads: rows and columns become one axis.

    conv2d 1×1 on [N, C, H, W]  -->  conv2d 1×1 on [N, C, 1, H*W]

Memory does not change, so the runtime passes views; the kernel gains an axis that tiles well
whatever H and W are, and equal products H*W share a key.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Workload


def collapse_rows(workload: Workload) -> Workload:
    """The workload with collapsed rows, or itself where that does not apply."""
    anchor = workload.anchor
    if anchor is None or anchor.operator != "conv2d" or not _pointwise(workload):
        return workload
    plane = workload.step_types(workload.anchor_index or 0)[1].shape[2:]
    if plane[0] == 1 or not all(
        step is anchor or OPERATORS[step.operator].elementwise for step in workload.steps
    ):
        return workload
    arguments: list[Argument] = []
    weight = anchor.inputs[1]
    for index, argument in enumerate(workload.arguments):
        shape = argument.type.shape
        if index != weight and shape[-2:] == plane:
            merged = TensorType((*shape[:-2], 1, plane[0] * plane[1]), argument.type.dtype)
            arguments.append(replace(argument, type=merged))
        elif index == weight or all(extent == 1 for extent in shape[-2:]):
            arguments.append(argument)
        else:
            return workload
    return Workload(arguments=tuple(arguments), steps=workload.steps)


def _pointwise(workload: Workload) -> bool:
    anchor, index = workload.anchor, workload.anchor_index
    if anchor is None or index is None:
        return False
    weight = workload.step_types(index)[0][1]
    return (
        weight.shape[2:] == (1, 1)
        and anchor.integers("strides") == (1, 1)
        and not any(anchor.integers("padding"))
    )
