"""Cutting deep chains of costly operators into stages.

    gelu(softplus(tanh(x)))  -->  value1 = tanh(x) in memory;  gelu(softplus(value1))

Composed expressions bind what they use more than once, and TVM's simplifier looks through such
bindings: its time grows exponentially with the number of costly operators on one path.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.lower.anchors import in_type, staged
from tilewright.compiler.lower.program import Program
from tilewright.graph.operators import OPERATORS

_COST = {
    "softplus": 2, "sigmoid": 1, "tanh": 1, "exp": 1, "erf": 1, "log": 1, "silu": 1, "gelu": 1,
    "elu": 1, "selu": 1,
}  # fmt: skip
_ROUNDING = dict.fromkeys(("identity", "reshape", "transpose", "slice", "expand", "gather"), 0)
"""What bfloat16 adds: its rounding takes several mentions of what is rounded, not of what moves."""
_DEEPEST = 2


def cut_deep_chains(program: Program, anchor: Callable[[Program, int], None]) -> list[str]:
    """Put intermediate results into stages so that no path holds too many costly operators.

    `anchor` computes the anchor's step. Gives the names of the stages added.
    """
    workload = program.workload
    arguments = len(workload.arguments)
    depth = [0] * arguments
    names: list[str] = []
    for index, step in enumerate(workload.steps):
        if OPERATORS[step.operator].anchor:
            anchor(program, index)
            depth.append(0)
            continue
        cost = _COST.get(step.operator, 0)
        if workload.types[arguments + index].dtype == "bfloat16":
            cost = max(cost, _ROUNDING.get(step.operator, 1))
        if cost + max((depth[i] for i in step.inputs), default=0) > _DEEPEST:
            for value in set(step.inputs):
                if depth[value] > 0:
                    names.append(f"value{value}")
                    kept = staged(program, program.operand(value), names[-1])
                    dtype = workload.types[value].dtype
                    program.set_step(value - arguments, in_type(kept, dtype))
                    depth[value] = 0
        depth.append(cost + max((depth[i] for i in step.inputs), default=0))
    return names
