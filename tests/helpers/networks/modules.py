"""A small network of inception modules, whose convolutions of one image can become one."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.graph.network import Array


def modules(*, side: int = 8, reduced: int = 16, name: str = "modules") -> onnx.ModelProto:
    """Two modules: 1×1 convolutions of one image, of which two are followed by larger ones, and
    everything joined. `reduced` are the channels of the smallest of these."""
    random, nodes = np.random.default_rng(0), list[onnx.NodeProto]()
    weights, channels = list[onnx.TensorProto](), {"input": 16}

    def conv(node: str, read: str, filters: int, kernel: int = 1) -> str:
        shape = (filters, channels[read], kernel, kernel)
        value = random.standard_normal(shape) / np.sqrt(shape[1] * kernel**2)
        both = (value.astype(np.float32), random.standard_normal(filters).astype(np.float32))
        named = [f"{node}.weight", f"{node}.bias"]
        weights.extend(map(numpy_helper.from_array, both, named))
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", [read, *named], [f"{node}.conv"], node, pads=pads))
        nodes.append(helper.make_node("Relu", [f"{node}.conv"], [node], f"{node}.relu"))
        channels[node] = filters
        return node

    image = conv("stem", "input", 32, 3)
    for at in "ab":
        parts = [
            conv(f"{at}.one", image, 32),
            conv(f"{at}.three", conv(f"{at}.reduce3", image, 32), 32, 3),
            conv(f"{at}.five", conv(f"{at}.reduce5", image, reduced), 16, 5),
        ]
        nodes.append(helper.make_node("Concat", parts, [f"{at}.join"], f"{at}.join", axis=1))
        image, channels[f"{at}.join"] = f"{at}.join", 80
    head = conv("head", image, 8)
    ends = [
        [helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, (1, count, side, side))]
        for tensor, count in (("input", 16), (head, 8))
    ]
    graph = helper.make_graph(nodes, name, *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def images(seed: int = 0, side: int = 8) -> dict[str, Array]:
    """An input of that network."""
    random = np.random.default_rng(seed)
    return {"input": random.standard_normal((1, 16, side, side)).astype(np.float32)}
