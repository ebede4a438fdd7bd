"""Cleaning: pure rewrites of a graph, run until none changes anything."""

from __future__ import annotations

from tilewright.graph.clean import attention, movements, patterns, scales, simplify
from tilewright.graph.network import Graph

REWRITES = (
    simplify.fold_constants,
    simplify.drop_identities,
    simplify.share_duplicates,
    scales.normalize_arithmetic,
    scales.merge_arithmetic,
    scales.distribute_scales,
    scales.multiply_to_codes,
    scales.fold_scales,
    patterns.recognize_activations,
    patterns.recognize_layer_norm,
    patterns.fold_layer_norm,
    patterns.simplify_products,
    patterns.split_gates,
    attention.recognize_attention,
    movements.sink_reshapes,
    movements.merge_movements,
    movements.drop_expansions,
    movements.merge_padding,
    movements.join_whole,
    movements.share_concatenations,
    movements.recognize_cache_writes,
    simplify.trim_constants,
)
"""The rewrites in order; unused nodes are dropped after each."""

_ROUNDS = 50


def clean(graph: Graph) -> Graph:
    """Run all rewrites to a fixed point. Inputs and outputs keep their names and values."""
    graph = simplify.drop_unused(graph)
    for _ in range(_ROUNDS):
        before = graph
        for rewrite in REWRITES:
            graph = simplify.drop_unused(rewrite(graph))
        if graph.nodes == before.nodes:
            break
    return graph
