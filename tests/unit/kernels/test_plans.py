"""From candidates to the plan of a network."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.fused_networks import ON, Builder, fused, planned
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.plans import packed_constant, with_candidates
from tilewright.kernels.registry import applicable
from tilewright.kernels.spaces import default_candidate


def check_constants(plan: NetworkPlan, network: FusedNetwork) -> None:
    """Every constant has the shape and type that it was announced with."""
    names = [stored.name for stored in plan.constants]
    assert len(set(names)) == len(names)
    for stored in plan.constants:
        array = packed_constant(stored, network.graph.constants)
        assert array.shape == stored.shape
        assert str(array.dtype) == stored.dtype
        assert array.flags["C_CONTIGUOUS"]
    for call in plan.calls:
        assert set(call.constants.values()) <= set(names)


def test_equal_tasks_share_a_kernel_and_not_their_weights():
    b = Builder()
    x = b.conv(b.input(1, 3, 6, 6), 16)
    for _ in range(3):
        x = b.add("relu", b.conv(x, 16))
    network = fused(b, b.conv(x, 4))
    plan = planned(network)
    assert len(plan.calls) == 5 and len(plan.symbols) == 3
    assert len(set(plan.symbols.values())) == len(plan.symbols)
    assert len(plan.constants) == 5
    check_constants(plan, network)


def test_shared_weights_are_stored_once():
    b = Builder()
    x, y = b.input(1, 8, 6, 6), b.input(1, 8, 6, 6)
    weight = b.weight(8, 8, 3, 3)
    named = {"strides": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1}
    outputs = [b.add("conv2d", t, weight, **named) for t in (x, y)]
    network = fused(b, *outputs)
    plan = planned(network)
    assert len(plan.constants) == 1
    assert {name for call in plan.calls for name in call.constants.values()} == {
        plan.constants[0].name
    }
    check_constants(plan, network)


def test_plans_of_one_model_share_what_is_packed_alike():
    b = Builder()
    x = b.conv(b.input(1, 8, 6, 6), 16)
    network = fused(b, b.conv(x, 16))
    plan = planned(network)
    first, second = plan.tasks.values()
    other = Candidate(implementation="generic", settings=(), forms=second.forms)
    changed = with_candidates(plan, {second.key: other})
    shared = {*plan.constant_names} & {*changed.constant_names}
    of_first = {n for c in plan.calls if c.task == first.key for n in c.constants.values()}
    assert of_first <= shared and plan.constant_names != changed.constant_names
    values = network.graph.constants
    stored = {c.name: packed_constant(c, values) for p in (plan, changed) for c in p.constants}
    for one in (plan, changed):
        for constant in one.constants:
            np.testing.assert_array_equal(
                stored[constant.name], packed_constant(constant, values), constant.name
            )


def test_shared_weights_in_two_forms_are_stored_twice():
    b = Builder()
    weight = b.weight(16, 16, 1, 1)
    named = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1}
    x = b.input(1, 16, 6, 6)
    once = b.add("conv2d", x, weight, **named)
    network = fused(b, b.add("conv2d", once, weight, **named))
    plan = planned(network)
    assert len(plan.constants) == 2
    check_constants(plan, network)


@pytest.mark.parametrize("shape", [(1, 16, 6, 6), (16, 1, 1), (1, 16, 1, 1), (), (1,)])
@pytest.mark.parametrize("collapsed", [False, True])
def test_constants_beside_the_weights(shape: tuple[int, ...], collapsed: bool):
    b = Builder()
    y = b.add("add", b.conv(b.input(1, 8, 6, 6), 16, 1), b.weight(*shape))
    network = fused(b, b.add("relu", y))
    check_constants(planned(network, collapsed=collapsed), network)


def test_a_constant_copied_into_a_concatenation():
    b = Builder()
    made = b.conv(b.input(1, 8, 4, 4), 16)
    both = b.add("concat", made, b.weight(1, 16, 4, 4), axis=1)
    network = fused(b, b.conv(both, 8))
    plan = planned(network)
    check_constants(plan, network)
    assert len(plan.constants) == 3


def test_candidates_are_replaced_for_all_calls_of_a_task():
    b = Builder()
    x = b.conv(b.input(1, 3, 6, 6), 16)
    network = fused(b, b.conv(b.add("relu", b.conv(b.add("relu", b.conv(x, 16)), 16)), 16))
    plan = planned(network)
    twice = next(task for task in plan.tasks.values() if task.count == 2)
    usual = plan.candidates[twice.key]
    other = Candidate(implementation="generic", settings=(), forms=usual.forms)
    changed = with_candidates(plan, {twice.key: other})
    assert [call.candidate == other for call in changed.calls] == [
        call.task == twice.key for call in plan.calls
    ]
    assert changed.tensors == plan.tensors and changed.tasks.keys() == plan.tasks.keys()
    check_constants(changed, network)
    assert with_candidates(changed, {twice.key: usual}) == plan


def test_a_candidate_in_other_forms_is_our_bug():
    b = Builder()
    plan = planned(fused(b, b.conv(b.input(1, 8, 4, 4), 8)))
    (key,) = plan.tasks
    wrong = Candidate(implementation="generic", settings=(), forms=(PLAIN,))
    with pytest.raises(InternalError, match="in other forms"):
        with_candidates(plan, {key: wrong})


def test_values_survive():
    b = Builder()
    network = fused(b, b.conv(b.input(1, 8, 4, 4), 16))
    plan, graph = planned(network), network.graph
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
