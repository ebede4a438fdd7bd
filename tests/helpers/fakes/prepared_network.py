"""A small network prepared for a made-up device, without a file behind it."""

from __future__ import annotations

from typing import cast

from helpers.fakes.measuring import PLACEMENT
from helpers.networks.graph_builder import Builder
from tilewright.graph.network import Graph
from tilewright.graph.plan import lane_of
from tilewright.graph.tasks import fused_network
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.models.loaded import LoadedModel, OnnxReference, PreparedNetwork


def two_convolutions() -> Graph:
    """16 → 64 → 64 → 16 channels, the middle one with a ReLU."""
    b = Builder()
    x = b.conv(b.input(1, 16, 12, 12), 64)
    return b.graph(b.conv(b.add("relu", b.conv(x, 64)), 16))


def prepared(graph: Graph) -> PreparedNetwork:
    """The network in its default layouts."""
    fused = fused_network(graph)
    forms = choose_forms(fused, PLACEMENT.target, PLACEMENT.resources)
    plan = lay_out(fused, forms, lane_of(PLACEMENT), default_settings(PLACEMENT))
    model = LoadedModel(
        name="made up",
        graph=graph,
        reference=cast(OnnxReference, None),
    )
    return PreparedNetwork(model=model, fused=fused, forms=forms, plan=plan)
