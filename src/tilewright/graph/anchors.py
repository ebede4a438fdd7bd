"""The bare anchor of a fused subgraph: the operator alone, as operator-level tuning sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.core.forms import PLAIN, Form, channel_block, in_channel_blocks
from tilewright.graph.workload import Argument, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class BareAnchor:
    """`workload` computes what the anchor computes inside a subgraph, with the same layouts."""

    workload: Workload
    forms: tuple[Form, ...]


def bare_anchor(workload: Workload, forms: tuple[Form, ...]) -> BareAnchor | None:
    """The anchor of a subgraph as a workload of its own; None where there is no anchor.

    conv2d(x, w) + b → relu → conv2d(x, w), its result in the type the anchor gives (an integer
    convolution's int32, say). An operand that the subgraph computes becomes data of the same type,
    in the layout of an argument with that shape.
    """
    step = workload.anchor
    if step is None or workload.anchor_index is None:
        return None
    count = len(workload.arguments)
    arguments: list[Argument] = []
    chosen: list[Form] = []
    for value in step.inputs:
        if value < count:
            arguments.append(workload.arguments[value])
            chosen.append(forms[value])
            continue
        kind = workload.types[value]
        alike = (
            form
            for argument, form in zip(workload.arguments, forms, strict=False)
            if argument.type.shape == kind.shape and argument.role == "data"
        )
        arguments.append(Argument(type=kind))
        chosen.append(next(alike, PLAIN))
    bare = Workload(
        arguments=tuple(arguments),
        steps=(replace(step, inputs=tuple(range(len(step.inputs)))),),
    )
    block = channel_block(forms[-1]) if in_channel_blocks(forms[-1]) else 0
    shape = bare.result.shape
    fits = block == 0 or (len(shape) == len(workload.result.shape) and shape[1] % block == 0)
    return BareAnchor(workload=bare, forms=(*chosen, forms[-1] if fits else PLAIN))
