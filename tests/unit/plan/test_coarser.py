"""What a network in single precision would take in bfloat16, told without measuring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.fakes.placements import altered
from helpers.fakes.prepared_network import prepared, two_convolutions
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import stored_in
from tilewright.core.records import Placement
from tilewright.hardware.features import units_of
from tilewright.kernels.spaces import default_candidate
from tilewright.plan import coarser
from tilewright.plan.coarser import coarser_estimate
from tilewright.testing.implementations import made_up_placement

PLAIN = made_up_placement(64)
NETWORK = prepared(two_convolutions())


def with_units(*features: str) -> Placement:
    return altered(PLAIN, features=features, units=units_of(features, 64))


FAST = with_units("avx512bf16")


def seconds(halved: bool) -> float:
    """The sum of the estimates of calls whose inner tensors are halves or singles."""
    place = replace(FAST, precision="bfloat16") if halved else FAST
    inner = {call.output for call in NETWORK.fused.calls} - {*NETWORK.graph.outputs}
    total = 0.0
    for call in NETWORK.fused.calls:
        forms = (
            stored_in(form, "bfloat16") if halved and name in inner else form
            for name in (*call.inputs, call.output)
            for form in [NETWORK.forms.get(name, coarser.PLAIN)]
        )
        total += default_candidate(call.workload, tuple(forms), place)[1]
    return total


def test_a_network_in_halves_is_estimated_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    found = coarser_estimate(NETWORK, FAST, 0.010)
    assert found is not None and (found.precision, found.types) == ("auto", ("bfloat16",))
    assert found.speedup == pytest.approx(seconds(False) / seconds(True)) and found.speedup > 1.3
    assert found.latency_s == pytest.approx(0.010 / found.speedup)
    monkeypatch.setattr(coarser, "_TASKS", 1)
    fewer = coarser_estimate(NETWORK, FAST, 0.010)
    assert fewer is not None and fewer.speedup > 1.3, "the others count as gaining as much"


def test_nothing_is_told_where_nothing_can_be_gained() -> None:
    """Without a unit for it, in another precision already, and where no product is."""
    b = Builder()
    tanh = prepared(b.graph(b.add("tanh", b.input(1, 64))))
    assert coarser_estimate(NETWORK, PLAIN, 1.0) is None
    assert coarser_estimate(replace(NETWORK, precision="bfloat16"), FAST, 1.0) is None
    assert coarser_estimate(tanh, FAST, 1.0) is None
