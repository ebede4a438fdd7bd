"""The chosen network as an ONNX file without weights, to be looked at in Netron.

Each call is a node of the domain `tilewright`, named after what computes it, with its layouts and
its time as attributes; copies into another layout are nodes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.core.results import ChoiceRow

DOMAIN = "tilewright"
_OPSET = 1


def write_drawing(
    path: Path, name: str, choices: Sequence[ChoiceRow], outputs: Sequence[str]
) -> None:
    """Write the calls as an ONNX model; raises OSError where that is not possible."""
    from onnx import NodeProto, TensorProto, helper

    nodes: list[NodeProto] = []
    written = {choice.output for choice in choices}
    given = dict.fromkeys(t for c in choices for t in c.inputs if t not in written)
    for choice in choices:
        inputs = list(choice.inputs)
        for tensor in dict.fromkeys(choice.changed):
            index = choice.inputs.index(tensor)
            copied = f"{tensor} for {choice.call}"
            nodes.append(
                helper.make_node(
                    "change_of_layout",
                    [tensor],
                    [copied],
                    name=copied,
                    domain=DOMAIN,
                    to=choice.layouts[index],
                )
            )
            inputs[index] = copied
        nodes.append(
            helper.make_node(
                choice.implementation.replace(" ", "_"),
                inputs,
                [choice.output],
                name=choice.call,
                domain=DOMAIN,
                operator=choice.anchor,
                layouts=list(choice.layouts),
                microseconds=round(choice.kernel_s * 1e6, 3),
                measured="yes" if choice.measured else "no",
            )
        )
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(t, TensorProto.FLOAT, None) for t in given],
        [helper.make_tensor_value_info(t, TensorProto.FLOAT, None) for t in outputs],
    )
    opset = helper.make_opsetid(DOMAIN, _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="tilewright")
    path.write_bytes(model.SerializeToString())
