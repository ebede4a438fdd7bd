"""What a compiled network consists of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fused_networks import Builder, fused

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.arrange import arrange
from tilewright.graph.collapse import collapse_rows
from tilewright.graph.fused import FusedNetwork
from tilewright.graph.tasks import task_key
from tilewright.kernels.blueprint import NetworkBlueprint, blueprint, packed_constant
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.registry import applicable
from tilewright.kernels.spaces import default_candidate
from tilewright.testing.implementations import made_up_placement

ON = made_up_placement(64)


def planned(network: FusedNetwork, *, collapsed: bool = False) -> NetworkBlueprint:
    if collapsed:
        calls = tuple(
            replace(call, workload=collapse_rows(call.workload)) for call in network.calls
        )
        network = FusedNetwork(graph=network.graph, calls=calls)
    arrangement = arrange(network, choose_forms(network, ON.target, ON.resources))
    chosen = {
        task_key(c): default_candidate(c.call.workload, c.forms, ON)[0] for c in arrangement.calls
    }
    return blueprint(arrangement, chosen)


def check_constants(plan: NetworkBlueprint) -> None:
    """Every constant has the shape and type that it was announced with."""
    graph = plan.arrangement.network.graph
    names = [stored.parameter.name for stored in plan.constants]
    assert len(set(names)) == len(names)
    for stored in plan.constants:
        array = packed_constant(stored, graph.constants)
        assert array.shape == stored.parameter.shape
        assert str(array.dtype) == stored.parameter.dtype
        assert array.flags["C_CONTIGUOUS"]
    for use in plan.uses:
        assert set(use.constants.values()) <= set(names)


def test_equal_tasks_share_a_kernel_and_not_their_weights():
    b = Builder()
    x = b.conv(b.input(1, 3, 6, 6), 16)
    for _ in range(3):
        x = b.add("relu", b.conv(x, 16))
    plan = planned(fused(b, b.conv(x, 4)))
    assert len(plan.uses) == 5 and len(plan.symbols) == 3
    assert len(set(plan.symbols.values())) == len(plan.symbols)
    assert len(plan.constants) == 5
    check_constants(plan)


def test_shared_weights_are_stored_once():
    b = Builder()
    x, y = b.input(1, 8, 6, 6), b.input(1, 8, 6, 6)
    weight = b.weight(8, 8, 3, 3)
    named = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    outputs = [b.add("conv2d", t, weight, **named) for t in (x, y)]
    plan = planned(fused(b, *outputs))
    assert len(plan.constants) == 1
    assert {name for use in plan.uses for name in use.constants.values()} == {
        plan.constants[0].parameter.name
    }
    check_constants(plan)


def test_shared_weights_in_two_forms_are_stored_twice():
    b = Builder()
    weight = b.weight(16, 16, 1, 1)
    named = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1}
    x = b.input(1, 16, 6, 6)
    once = b.add("conv2d", x, weight, **named)
    plan = planned(fused(b, b.add("conv2d", once, weight, **named)))
    assert len(plan.constants) == 2
    check_constants(plan)


@pytest.mark.parametrize("shape", [(1, 16, 6, 6), (16, 1, 1), (1, 16, 1, 1), (), (1,)])
@pytest.mark.parametrize("collapsed", [False, True])
def test_constants_beside_the_weights(shape: tuple[int, ...], collapsed: bool):
    b = Builder()
    y = b.add("add", b.conv(b.input(1, 8, 6, 6), 16, 1), b.weight(*shape))
    check_constants(planned(fused(b, b.add("relu", y)), collapsed=collapsed))


def test_a_constant_copied_into_a_concatenation():
    b = Builder()
    made = b.conv(b.input(1, 8, 4, 4), 16)
    both = b.add("concat", made, b.weight(1, 16, 4, 4), axis=1)
    plan = planned(fused(b, b.conv(both, 8)))
    check_constants(plan)
    assert len(plan.constants) == 3


def test_a_missing_candidate_is_our_bug():
    b = Builder()
    network = fused(b, b.conv(b.input(1, 8, 4, 4), 8))
    arrangement = arrange(network, choose_forms(network, ON.target, ON.resources))
    with pytest.raises(InternalError, match="no candidate"):
        blueprint(arrangement, {})


def test_values_survive():
    b = Builder()
    plan = planned(fused(b, b.conv(b.input(1, 8, 4, 4), 16)))
    graph = plan.arrangement.network.graph
    (stored,) = plan.constants
    packed = np.sort(packed_constant(stored, graph.constants).ravel())
    (logical,) = graph.constants.values()
    np.testing.assert_array_equal(packed, np.sort(logical.ravel()))


def test_registry_order_and_names():
    b = Builder()
    (call,) = fused(b, b.conv(b.input(1, 8, 4, 4), 16)).calls
    names = [spec.name for spec in applicable(call.workload, ON.target, ON.resources)]
    assert names[0] == "conv2d_direct" and "generic" in names
    assert len(set(names)) == len(names)
    chosen, _ = default_candidate(call.workload, (PLAIN,) * 3, ON)
    assert isinstance(chosen, Candidate) and chosen.implementation == "conv2d_direct"
