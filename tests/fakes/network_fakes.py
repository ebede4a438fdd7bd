"""A small network prepared for a made-up device, without a file behind it."""

from __future__ import annotations

from typing import cast

from fake_measuring import PLACEMENT
from graph_builder import Builder

from tilewright.graph.arrange import arrange
from tilewright.graph.network import Graph
from tilewright.graph.tasks import fused_network, tasks_of
from tilewright.kernels.forms import choose_forms
from tilewright.models.loaded import LoadedModel, OnnxReference
from tilewright.models.prepared import PreparedNetwork


def two_convolutions() -> Graph:
    """16 → 64 → 64 → 16 channels, the middle one with a ReLU."""
    b = Builder()
    x = b.conv(b.input(1, 16, 12, 12), 64)
    return b.graph(b.conv(b.add("relu", b.conv(x, 64)), 16))


def prepared(graph: Graph) -> PreparedNetwork:
    """The network in its default layouts."""
    fused = fused_network(graph)
    arrangement = arrange(fused, choose_forms(fused, PLACEMENT.target, PLACEMENT.resources))
    model = LoadedModel(
        name="made up",
        graph=graph,
        reference=cast(OnnxReference, None),
        inputs={},
        outputs=graph.outputs,
    )
    return PreparedNetwork(
        model=model, key=fused.key, arrangement=arrangement, tasks=tasks_of(arrangement)
    )
