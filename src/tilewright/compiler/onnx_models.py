"""Tasks as ONNX models: the nodes of `kernels.onnx_rules` as ONNX Runtime reads them."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.core.forms import Form
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.onnx_nodes import OPSET, OnnxNode
from tilewright.kernels.onnx_rules import onnx_task

TASK = "tilewright task"
"""What graphs of tasks are called; islands have other names."""
_IR_VERSION = 9
_CONTRIBUTED = "com.microsoft"
_ELEMENT = "to"


@lru_cache(maxsize=64)
def task_model(workload: Workload, forms: tuple[Form, ...]) -> str:
    """A task in forms as a model in base64, whose inputs are all arguments in their physical
    shapes. Raises Untranslatable."""
    task = onnx_task(workload, forms)
    result = TensorType(forms[-1].physical_shape(workload.result.shape), workload.result.dtype)
    graph = helper.make_graph(
        [_node(node) for node in task.nodes],
        TASK,
        [_value(name, kind) for name, kind in task.inputs.items()],
        [_value(task.output, result)],
        [numpy_helper.from_array(array, name) for name, array in task.constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_CONTRIBUTED, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    return b64encode(model.SerializeToString(deterministic=True)).decode("ascii")


def _value(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _element(kind.dtype), kind.shape)


def _element(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _node(node: OnnxNode) -> onnx.NodeProto:
    domain, _, operator = node.operator.rpartition(".")
    named: dict[str, Any] = dict(node.attributes)
    if _ELEMENT in named:
        named[_ELEMENT] = _element(named[_ELEMENT])
    return helper.make_node(operator, node.inputs, node.outputs, domain=domain, **named)
