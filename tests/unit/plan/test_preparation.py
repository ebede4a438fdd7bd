"""Networks that no memory holds are refused before any work."""

from __future__ import annotations

import pytest

from helpers.fakes.measuring import PLACEMENT
from tilewright.core.errors import ModelError, UsageError
from tilewright.models import ModelOptions
from tilewright.plan import preparation
from tilewright.plan.preparation import prepare, require_memory

pytestmark = pytest.mark.regression


def test_a_network_that_cannot_fit_names_its_largest_tensor() -> None:
    with pytest.raises(ModelError, match=r"needs 8192 GiB.*'x', float32\[1048576,1048576\]"):
        prepare("op:relu[shape=1048576x1048576]", ModelOptions(), PLACEMENT)
    with pytest.raises(ModelError, match="batch|memory"):
        prepare("zoo:squeezenet1_1", ModelOptions(batch=10**9), PLACEMENT)


def test_the_limit_counts_inputs_outputs_weights_and_what_lies_between() -> None:
    network = prepare("op:conv2d[c=4,h=8,w=8,out=4,k=3,relu=1]", ModelOptions(), PLACEMENT)
    graph, arena = network.graph, network.plan.arena_bytes
    named = {*graph.inputs, *graph.outputs, *graph.constants}
    needed = arena + sum(graph.types[name].bytes for name in named)
    require_memory(graph, network.plan, needed)
    with pytest.raises(ModelError, match="more memory|of memory"):
        require_memory(graph, network.plan, needed - 1)


def test_weights_that_no_memory_holds_are_not_drawn() -> None:
    text = "op:conv2d[c=1000000,h=10,w=10,out=1000000,k=3]"
    for made in (prepare, preparation.prepare_outline):
        with pytest.raises(UsageError, match="more than the memory"):
            made(text, ModelOptions(), PLACEMENT)
