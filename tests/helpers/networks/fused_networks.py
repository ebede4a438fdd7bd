"""Small fused networks for the tests of layouts and plans."""

from __future__ import annotations

from dataclasses import replace

from helpers.networks.graph_builder import Builder
from tilewright.graph.fuse import FusedNetwork, fuse
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import collapse_rows
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.testing.implementations import made_up_placement

ON = made_up_placement(64)


def fused(b: Builder, *outputs: str) -> FusedNetwork:
    """The fused network of a builder's graph."""
    return fuse(b.graph(*outputs))


def planned(network: FusedNetwork, *, collapsed: bool = False) -> NetworkPlan:
    """Its plan with default settings; the workloads of rows collapsed where asked for."""
    if collapsed:
        calls = tuple(
            replace(call, workload=collapse_rows(call.workload)) for call in network.calls
        )
        network = FusedNetwork(graph=network.graph, calls=calls)
    forms = choose_forms(network, ON.target, ON.resources)
    return lay_out(network, forms, lane_of(ON), default_settings(ON))
