"""Plans are written and read as they are; what is damaged is a ValueError and nothing else."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.graph_arrangement import arranged
from helpers.networks.graph_builder import Builder
from tilewright.core.forms import parse_form
from tilewright.core.targets import parse_resources
from tilewright.graph.plan import MAIN, Lane, NetworkPlan, PlannedTensor
from tilewright.graph.plan_fields import plan_fields, read_plan
from tilewright.kernels.plans import with_candidates


def branches() -> NetworkPlan:
    """Convolutions with packed weights, a concatenation in place, blocked tensors, two outputs."""
    b = Builder()
    x = b.conv(b.input(1, 16, 6, 6), 32)
    joined = b.add("concat", b.conv(x, 16), b.conv(x, 16), axis=1)
    return arranged(b.graph(b.add("relu", joined), x), block=16)


def two_lanes() -> NetworkPlan:
    """A transfer between devices, a wait, an output that lies in an input, and another type."""
    plan = arranged(_chain())
    first, second, third = plan.calls
    half = parse_form("plain:bfloat16")
    tensors = dict(plan.tensors)
    moved = tensors[second.output]
    tensors[second.output] = PlannedTensor(
        type=moved.type, root=moved.root, device="far", form=half
    )
    lanes = {MAIN: plan.only_lane, "far": Lane(device="far", resources=parse_resources("4t2c"))}
    return NetworkPlan(
        inputs=plan.inputs,
        outputs=plan.outputs,
        tensors=tensors,
        calls=(
            first,
            replace(second, lane="far", kind="transfer", after=(first.name,)),
            replace(third, kind="transfer", after=(second.name,)),
        ),
        lanes=lanes,
    )


def _chain() -> Any:
    b = Builder()
    x = b.input(1, 8)
    for _ in range(3):
        x = b.add("softmax", x, axis=1)
    return b.graph(x)


PLANS = {"branches": branches, "two lanes": two_lanes}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_as_it_was_written(name: str) -> None:
    plan = PLANS[name]()
    fields = json.loads(json.dumps(plan_fields(plan)))
    found = read_plan(fields)
    assert found == plan
    assert json.loads(json.dumps(plan_fields(found))) == fields
    assert (found.memory, found.symbols) == (plan.memory, plan.symbols)


def test_what_is_usual_is_left_out_and_kernels_are_written_once() -> None:
    fields = plan_fields(branches())
    calls = fields["calls"]
    assert all("lane" not in call and "after" not in call for call in calls)
    assert len(fields["workloads"]) <= len(fields["kernels"]) < len(calls)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, item in inner:
        found.append((*path, key))
        if isinstance(item, (dict, list)):
            found += _places(item, (*path, key))
    return found


WRITTEN = json.loads(json.dumps(plan_fields(branches())))
PLACES = _places(WRITTEN)
ODD = (None, "", "zz", -1, 1 << 70, 0.5, [], {}, [[]], True)


@settings(deadline=None, max_examples=300)
@given(place=st.sampled_from(PLACES), odd=st.sampled_from(("drop", *ODD)))
def test_a_damaged_plan_is_another_one_or_a_value_error(place: tuple[Any, ...], odd: Any) -> None:
    damaged = deepcopy(WRITTEN)
    holder = damaged
    for key in place[:-1]:
        holder = holder[key]
    if odd == "drop":
        del holder[place[-1]]
    else:
        holder[place[-1]] = odd
    try:
        found = read_plan(damaged)
    except ValueError:
        return
    assert isinstance(found, NetworkPlan)


@pytest.mark.parametrize("fields", [None, [], {}, 3, {"calls": []}, {"calls": {}, "inputs": 1}])
def test_what_is_no_plan_is_a_value_error(fields: object) -> None:
    with pytest.raises(ValueError):
        read_plan(fields)


def test_a_plan_on_another_lane_has_its_tensors_there() -> None:
    plan = branches()
    there = Lane(device="elsewhere", resources=parse_resources("4t"))
    moved = plan.on(there)
    assert moved.only_lane == there and plan.on(plan.only_lane) is plan
    assert {tensor.device for tensor in moved.tensors.values()} == {"elsewhere"}
    assert moved.candidates == plan.candidates and moved.constant_names == plan.constant_names
    assert with_candidates(moved, {}) == moved
