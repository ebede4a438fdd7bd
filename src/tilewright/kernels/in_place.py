"""Operands in whose memory a kernel may write its result.

    out = relu(conv(data, weights) + shortcut)      `out` may take the place of `shortcut`

Each element of such an operand is read for the element of the result at its place, and not
afterwards. Whether anybody else still reads the operand is known to a plan of the network.
"""

from __future__ import annotations

from tilewright.core.records import Candidate
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import ReadsBeforeWriting
from tilewright.kernels.registry import implementation


def overwritable(workload: Workload, candidate: Candidate) -> tuple[int, ...]:
    """Those operands, by argument index."""
    if not isinstance(implementation(candidate.implementation), ReadsBeforeWriting):
        return ()
    return tuple(
        index
        for index, (argument, form) in enumerate(
            zip(workload.arguments, candidate.forms, strict=False)
        )
        if argument.role != "constant"
        and (argument.type, form) == (workload.result, candidate.forms[-1])
        and _element_by_element(workload, index)
    )


def _element_by_element(workload: Workload, value: int) -> bool:
    """Whether all that is computed of a value of the result's shape is so, place by place."""
    reached = {value}
    for number, step in enumerate(workload.steps, start=len(workload.arguments)):
        if reached.isdisjoint(step.inputs):
            continue
        if not OPERATORS[step.operator].elementwise:
            return False
        if workload.types[number].shape != workload.result.shape:
            return False
        reached.add(number)
    return True
