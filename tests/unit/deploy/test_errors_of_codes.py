"""The error that is allowed of networks on codes where nobody asks for another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.networks.graph_builder import Builder
from helpers.networks.tiny_networks import quantized_resnet
from tilewright.core.budget import Limit
from tilewright.deploy.optimizing import _coarse_enough  # pyright: ignore[reportPrivateUsage]
from tilewright.graph.network import Graph
from tilewright.models.loaded import ModelOptions
from tilewright.models.loading import load_model
from tilewright.search.levels import OptimizeRequest


def in_codes() -> Graph:
    return load_model(quantized_resnet("basic_1_1"), "tiny").graph


def in_floats() -> Graph:
    builder = Builder()
    whole = builder.add("cast", builder.input(1, 4, 6, 6), dtype="int8")
    return builder.graph(whole)


@pytest.mark.parametrize(
    ("graph", "asked", "allowed"),
    [(in_codes(), True, 1e-4), (in_codes(), False, 3e-2), (in_floats(), False, 1e-4)],
)
def test_codes_may_become_their_neighbours(graph: Graph, asked: bool, allowed: float) -> None:
    request = OptimizeRequest(
        model="m", options=ModelOptions(), budget=Limit(measurements=0), folder=Path("o"),
        max_error=1e-4, seed=0, usual_error=not asked,
    )  # fmt: skip
    assert _coarse_enough(request, graph).max_error == allowed
    coarser = replace(request, max_error=0.5)
    assert _coarse_enough(coarser, graph).max_error == 0.5
