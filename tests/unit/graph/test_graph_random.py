"""Random graphs keep their meaning through cleaning and fusion."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.graph_builder import assert_same, random_inputs, run_fused
from helpers.networks.random_graphs import graphs
from tilewright.graph.clean import clean
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import fuse
from tilewright.graph.network import Graph
from tilewright.graph.workload import parse_workload


@settings(max_examples=120, deadline=None)
@given(graphs())
def test_cleaning_keeps_the_meaning(graph: Graph) -> None:
    result = clean(graph)
    assert_same(graph, result, tolerance=1e-3)
    assert clean(result).nodes == result.nodes


@settings(max_examples=120, deadline=None)
@given(graphs(), st.booleans())
def test_fusion_keeps_the_meaning(graph: Graph, cleaned: bool) -> None:
    network = fuse(clean(graph) if cleaned else graph)
    inputs = random_inputs(graph)
    wanted = run_graph(graph, inputs)
    got = run_fused(network, inputs)
    for name in graph.outputs:
        scale = max(1.0, float(np.abs(wanted[name]).max()))
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=1e-3 * scale)
    written = set(network.graph.inputs) | set(network.graph.constants)
    for call in network.calls:
        assert written.issuperset(call.inputs)
        written.add(call.output)
        assert parse_workload(call.workload.text) == call.workload
        assert len(call.workload.steps) <= 12
