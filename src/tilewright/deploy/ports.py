"""The inputs and outputs of a network as those who call it see them."""

from __future__ import annotations

from tilewright.deploy.manifest import Port
from tilewright.graph.inputs import input_ranges
from tilewright.graph.network import Graph
from tilewright.models.loaded import PreparedNetwork


def input_ports(network: PreparedNetwork) -> tuple[Port, ...]:
    """The inputs by the names of the model, with what indices they hold."""
    return graph_inputs(network.model.graph)


def graph_inputs(graph: Graph) -> tuple[Port, ...]:
    """The inputs of a model's graph, with what indices they hold."""
    types, ranges = graph.types, input_ranges(graph)
    return tuple(
        Port(
            name=name,
            shape=types[name].shape,
            dtype=types[name].dtype,
            index_ranges=tuple((r.lowest, r.highest) for r in ranges.get(name, ())),
        )
        for name in graph.inputs
    )


def output_ports(network: PreparedNetwork) -> tuple[Port, ...]:
    """The outputs by the names of the model."""
    made = network.graph.types
    return tuple(
        Port(name=name, shape=made[ours].shape, dtype=made[ours].dtype)
        for name, ours in zip(network.model.outputs, network.graph.outputs, strict=True)
    )
