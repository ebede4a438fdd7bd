"""Models of one operator that tilewright has no kernels for."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import onnx
from onnx import helper

F = "float32"


def single_node(operator: str, inputs: list, outputs: list, constants: dict | None = None, **named):
    """A model of one node; `inputs` and `outputs` are (type, shape)."""
    constants = constants or {}
    names = [f"i{k}" for k in range(len(inputs))]

    def value(name, kind):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(kind[0]))
        return helper.make_tensor_value_info(name, code, kind[1])

    graph = helper.make_graph(
        [
            helper.make_node(
                operator, [*names, *constants], [f"o{k}" for k in range(len(outputs))], **named
            )
        ],
        "opaque",
        [value(n, kind) for n, kind in zip(names, inputs, strict=True)],
        [value(f"o{k}", kind) for k, kind in enumerate(outputs)],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoded(model) -> str:
    return b64encode(model.SerializeToString(deterministic=True)).decode("ascii")


CASES = {
    "cumsum": single_node("CumSum", [(F, (3, 4))], [(F, (3, 4))], {"axis": np.array(1)}),
    "topk": single_node(
        "TopK", [(F, (3, 10))], [(F, (3, 2)), ("int64", (3, 2))], {"k": np.array([2])}
    ),
    "split": single_node(
        "Split", [(F, (4, 6))], [(F, (4, 2)), (F, (4, 4))], {"s": np.array([2, 4])}, axis=1
    ),
    "gather_nd": single_node("GatherND", [(F, (3, 4))], [(F, (2, 4))], {"i": np.array([[1], [2]])}),
    "depth_to_space": single_node(
        "DepthToSpace", [(F, (1, 8, 4, 4))], [(F, (1, 2, 8, 8))], blocksize=2
    ),
    "linear_resize": single_node(
        "Resize",
        [(F, (1, 2, 4, 4))],
        [(F, (1, 2, 8, 8))],
        {"r": np.array([], F), "s": np.array([1, 1, 2, 2], F)},
        mode="linear",
    ),
    "conv3d": single_node(
        "Conv", [(F, (1, 4, 8, 8, 8)), (F, (8, 4, 3, 3, 3))], [(F, (1, 8, 6, 6, 6))]
    ),
    "argmax": single_node("ArgMax", [(F, (3, 4))], [("int64", (3, 1))], axis=1),
    "identity": single_node("Dropout", [(F, (3, 4))], [(F, (3, 4))]),
}
