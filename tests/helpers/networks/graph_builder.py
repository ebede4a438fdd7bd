"""Building small graphs by hand for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tilewright.graph.evaluate import OpaqueRunner, run_graph, run_workload
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array, AttributeValue, Graph, Node, TensorType, attributes
from tilewright.graph.operators import OPERATORS


class Builder:
    """Adds nodes one by one, inferring types; tensors are named in order."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.inputs: list[str] = []

    def input(self, *shape: int, dtype: str = "float32") -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = TensorType(shape, dtype)
        return name

    def constant(self, value: object) -> str:
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.types[name] = TensorType(array.shape, str(array.dtype))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.normal(size=shape))

    def add(self, operator: str, *inputs: str, **named: AttributeValue) -> str:
        name = f"t{len(self.nodes)}"
        kinds = tuple(self.types[tensor] for tensor in inputs)
        self.types[name] = OPERATORS[operator].infer(kinds, named)
        self.nodes.append(
            Node(
                name=f"node{len(self.nodes)}",
                operator=operator,
                inputs=inputs,
                outputs=(name,),
                attributes=attributes(**named),
            )
        )
        return name

    def conv(
        self, x: str, filters: int, kernel: int = 3, *, groups: int = 1, **named: AttributeValue
    ) -> str:
        weight = self.weight(filters, self.types[x].shape[1] // groups, kernel, kernel)
        pad = kernel // 2
        defaults: dict[str, AttributeValue] = {
            "strides": (1, 1), "padding": (pad,) * 4, "dilation": (1, 1), "groups": groups,
        }  # fmt: skip
        return self.add("conv2d", x, weight, **{**defaults, **named})

    def graph(self, *outputs: str) -> Graph:
        return Graph(
            name="test",
            nodes=tuple(self.nodes),
            inputs=tuple(self.inputs),
            outputs=outputs,
            types=self.types,
            constants=self.constants,
        )


def random_inputs(graph: Graph, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=graph.types[name].shape).astype(graph.types[name].dtype)
        for name in graph.inputs
    }


def assert_same(before: Graph, after: Graph, *, tolerance: float = 1e-4) -> None:
    """Both graphs give the same outputs under the same names."""
    assert after.outputs == before.outputs
    inputs = random_inputs(before)
    wanted, got = run_graph(before, inputs), run_graph(after, inputs)
    for name in before.outputs:
        scale = max(1.0, float(np.abs(wanted[name]).max(initial=0)))
        assert got[name].shape == wanted[name].shape
        assert got[name].dtype == wanted[name].dtype
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=tolerance * scale)


def run_fused(
    network: FusedNetwork, inputs: Mapping[str, Array], *, opaque: OpaqueRunner | None = None
) -> dict[str, Array]:
    """All tensors that calls read or write, computed in numpy call by call: whether fusion kept the
    meaning."""
    values = {**network.graph.constants, **inputs}
    for call in network.calls:
        read = [values[name] for name in call.inputs]
        values[call.output] = run_workload(call.workload, read, opaque=opaque)
    return values


def operators(nodes: Graph | Iterable[Node]) -> list[str]:
    """The operators in order."""
    return [node.operator for node in (nodes.nodes if isinstance(nodes, Graph) else nodes)]
