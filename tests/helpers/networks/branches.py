"""A small network with two calls beside each other, and plans of it in which they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.graph.network import Array
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem


def branches(outputs: int = 8, name: str = "branches", seed: int = 0) -> onnx.ModelProto:
    """A convolution, two beside each other that read it, and one that reads both joined."""
    random = np.random.default_rng(seed)
    shapes = {"stem": (16, 3), "left": (16, 16), "right": (16, 16), "head": (outputs, 32)}
    weights = [
        numpy_helper.from_array(
            random.standard_normal((*shape, 3, 3)).astype(np.float32) / 12, f"{node}.weight"
        )
        for node, shape in shapes.items()
    ]
    reads = {"stem": "input", "left": "stem", "right": "stem", "head": "both"}
    made = {
        node: helper.make_node("Conv", [read, f"{node}.weight"], [node], node, pads=[1] * 4)
        for node, read in reads.items()
    }
    both = helper.make_node("Concat", ["left", "right"], ["both"], "both", axis=1)
    order = [made["stem"], made["left"], made["right"], both, made["head"]]
    float32 = onnx.TensorProto.FLOAT
    ends = [
        [helper.make_tensor_value_info(tensor, float32, (1, channels, 16, 16))]
        for tensor, channels in (("input", 3), ("head", outputs))
    ]
    graph = helper.make_graph(order, name, *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def alone_on_one_core(plan: Plan) -> Plan:
    """The plan whose calls take as long on two cores as on one, so that branches are beside each
    other wherever that can be."""

    def slow(problem: SchedulingProblem) -> SchedulingProblem:
        calls = [
            replace(
                call,
                task="",
                modes=tuple(
                    replace(m, latency_s=1e-4, low_s=1e-4, high_s=1e-4) for m in call.modes
                ),
            )
            for call in problem.calls
        ]
        return replace(problem, calls=tuple(calls))

    problem = slow(plan.problem)
    return replace(plan, problem=problem, schedule=schedule_with("heft", problem))


def image(seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {"input": random.standard_normal((1, 3, 16, 16)).astype(np.float32)}
