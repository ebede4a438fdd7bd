"""What may be composed into a kernel that is written thread by thread."""

from __future__ import annotations

from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import anchored

MOST_ELEMENTS = 2**31 - 2**20
"""Positions, those past the end included, are whole numbers of four bytes."""
_DEEPEST = 2


def costly_values(workload: Workload) -> frozenset[int]:
    """Values that are kept before anything is computed of them, since expressions of more than two
    costly functions take a compiler's simplifier exponential time."""
    depth, costly = [0] * len(workload.arguments), set[int]()
    for step in workload.steps:
        if OPERATORS[step.operator].anchor:
            depth.append(0)
            continue
        cost, below = OPERATORS[step.operator].transcendental, [depth[i] for i in step.inputs]
        if cost + max(below, default=0) > _DEEPEST:
            costly |= {i for i in step.inputs if depth[i] > 0}
            below = [0]
        depth.append(cost + max(below, default=0))
    return frozenset(costly)


def elementwise_after(workload: Workload) -> bool:
    """Whether nothing follows the anchor but elementwise steps on all of its result. Where a value
    after it is kept in a register, nothing may move, either: it would be read in several places.
    None may have to be kept before the anchor, whose threads read it again and again."""
    _, _, result = anchored(workload)
    anchor = workload.anchor_index or 0
    alike = all(OPERATORS[step.operator].elementwise for step in workload.steps[anchor + 1 :])
    moved = any(OPERATORS[step.operator].movement for step in workload.steps)
    costly = costly_values(workload)
    early = any(number < len(workload.arguments) + anchor for number in costly)
    same = result.shape == workload.result.shape
    return alike and same and not early and not (moved and costly)
