"""Cleaning: pure rewrites of a graph, run until none changes anything."""

from __future__ import annotations

from tilewright.graph.clean.movements import (
    drop_expansions,
    merge_movements,
    merge_padding,
    share_concatenations,
)
from tilewright.graph.clean.patterns import (
    fold_layer_norm,
    recognize_activations,
    recognize_layer_norm,
    simplify_products,
)
from tilewright.graph.clean.reshapes import sink_reshapes
from tilewright.graph.clean.scales import (
    distribute_scales,
    fold_scales,
    merge_arithmetic,
    normalize_arithmetic,
)
from tilewright.graph.clean.simplify import (
    drop_identities,
    drop_unused,
    fold_constants,
    share_duplicates,
    trim_constants,
)
from tilewright.graph.network import Graph

REWRITES = (
    fold_constants,
    drop_identities,
    share_duplicates,
    normalize_arithmetic,
    merge_arithmetic,
    distribute_scales,
    fold_scales,
    recognize_activations,
    recognize_layer_norm,
    fold_layer_norm,
    simplify_products,
    sink_reshapes,
    merge_movements,
    drop_expansions,
    merge_padding,
    share_concatenations,
    trim_constants,
)
"""The rewrites in order; unused nodes are dropped after each."""

_ROUNDS = 50


def clean(graph: Graph) -> Graph:
    """Run all rewrites to a fixed point. Inputs and outputs keep their names and values."""
    graph = drop_unused(graph)
    for _ in range(_ROUNDS):
        before = graph
        for rewrite in REWRITES:
            graph = drop_unused(rewrite(graph))
        if graph.nodes == before.nodes:
            break
    return graph
