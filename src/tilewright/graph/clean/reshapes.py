"""Moving reshapes behind the work that does not mind them."""

from __future__ import annotations

from math import prod

from tilewright.graph.clean.edit import Edit
from tilewright.graph.network import Graph, Node
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType


def sink_reshapes(graph: Graph) -> Graph:
    """Move reshapes that keep the last axis behind dense layers, and behind elementwise operators.

    before: relu(dense(reshape(x[2,5,8], [10,8]), w) + b)
    after:  reshape(relu(dense(x[2,5,8], w) + b), [10,n])

    They then meet the reshape back and vanish, and what they kept apart can be fused. Elementwise
    operators let them pass when their other operands are single constants or constants along the
    last axis. A reshape behind another movement stays: the two merge.
    """
    edit = Edit(graph)
    for node in graph.nodes:
        if len(node.outputs) != 1 or not node.inputs:
            continue
        port = _reshaped_port(edit, node)
        if port is None:
            continue
        reshape = edit.producer(node.inputs[port], "reshape")
        if reshape is None or not edit.read_once(reshape.output):
            continue
        if edit.moved(reshape.inputs[0]):
            continue
        if not _indifferent(edit, node, port, edit.types[reshape.inputs[0]]):
            continue
        inputs = (*node.inputs[:port], reshape.inputs[0], *node.inputs[port + 1 :])
        moved = edit.rewritten(node, inputs)
        shape = edit.types[node.output].shape
        back = edit.node(
            "reshape", (moved.output,), name=node.name, output=node.output, shape=shape
        )
        edit.replace(node, moved, back)
    return edit.finish()


def _reshaped_port(edit: Edit, node: Node) -> int | None:
    """The only port of a node that reads no constant, if it can be behind a reshape."""
    if node.operator == "dense":
        return 0
    if not OPERATORS[node.operator].elementwise:
        return None
    ports = [port for port, name in enumerate(node.inputs) if name not in edit.constants]
    return ports[0] if len(ports) == 1 else None


def _indifferent(edit: Edit, node: Node, port: int, source: TensorType) -> bool:
    """Whether the node may run on the unreshaped tensor."""
    reshaped = edit.types[node.inputs[port]]
    same_last = source.shape[-1:] == reshaped.shape[-1:] != ()
    if node.operator == "dense":
        return same_last and node.inputs[1] in edit.constants
    if edit.types[node.output].shape != reshaped.shape:
        return False
    for other, name in enumerate(node.inputs):
        shape = edit.types[name].shape
        along_last = same_last and prod(shape[:-1]) == 1 and len(shape) <= len(source.shape)
        if other != port and prod(shape) != 1 and not along_last:
            return False
        if other != port and len(shape) > len(source.shape):
            return False
    return True
