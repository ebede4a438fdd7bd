"""Lanes in compiled networks: the same results, and nothing that the plan forbids."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.small_networks import Builder, built, compiled, random_arrays
from tilewright.compiler.execute import set_threads
from tilewright.core.errors import InternalError
from tilewright.graph.network import Graph
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.regions import Region, steps_of
from tilewright.hardware.device import local_placement
from tilewright.kernels.planned_memory import planned_memory
from tilewright.plan.lanes import LaneCalls, Stage, in_stages, may_run_beside

ONE_CORE = local_placement(1)


def branches() -> Graph:
    """An inception block: four branches of one or two kernels, concatenated in place."""
    b = Builder()
    x = b.conv(b.input(1, 3, 12, 12), 16)
    y = b.conv(b.add("relu", x), 8, 1)
    z = b.conv(b.add("relu", b.conv(x, 8, 1)), 8)
    w = b.conv(b.add("relu", b.conv(x, 4, 1)), 8)
    v = b.add("sigmoid", b.conv(x, 8, 1))
    return b.graph(b.conv(b.add("concat", y, z, w, v, axis=1), 4, 1))


def outputs(plan: NetworkPlan, graph: Graph, threads: int) -> list[np.ndarray]:
    """What a plan gives, twice, in a pool of so many threads, wherever they run."""
    loaded, inputs = built(plan, dict(graph.constants)), random_arrays(graph, 0)
    given = [inputs[name] for name in plan.inputs]
    with ThreadPoolExecutor(1) as thread:
        thread.submit(set_threads, threads, [0] * threads).result()
        first, second = (thread.submit(loaded, given).result() for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    return first


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=2, deadline=None)
def test_stages_give_what_the_sequence_gives(seed: int) -> None:
    graph = branches()
    plan, loaded = compiled(graph)
    random = np.random.default_rng(seed)
    names = [call.name for call in plan.calls]
    branch = {name: int(random.integers(3)) for name in names}
    waits = _waits(plan)
    stages, left = list[Stage](), list(names)
    widths = random.integers(1, 4, 2).tolist()
    while left:
        lanes: list[list[str]] = [[], []]
        for name in list(left):
            lane = branch[name]
            where = {n for n in waits[name] if n in left}
            if lane < 2 and where <= {*lanes[lane]}:
                lanes[lane].append(name)
        taken = {*lanes[0], *lanes[1]}
        if random.integers(2) and all(lanes):
            stages.append([LaneCalls(*lane) for lane in zip(lanes, widths, strict=True)])
        else:
            taken = {left[0]}
            stages.append(left[0])
        left = [name for name in left if name not in taken]
    staged = in_stages(plan, stages)
    assert {call.name for call in staged.calls} == {*names}
    inputs = random_arrays(graph, 0)
    wanted = loaded([inputs[name] for name in plan.inputs])
    for one, other in zip(wanted, outputs(staged, graph, sum(widths)), strict=True):
        np.testing.assert_array_equal(one, other)


def _waits(plan: NetworkPlan) -> dict[str, set[str]]:
    """The calls that wrote what a call reads."""
    found: dict[str, set[str]] = {}
    for call in plan.calls:
        roots = {plan.tensors[t].root for n, t in enumerate(call.inputs) if n not in call.constants}
        found[call.name] = {
            other.name
            for other in plan.calls
            if other.name in found and plan.tensors[other.output].root in roots
        }
    return found


def test_lanes_of_the_same_kernels_are_bit_for_bit_the_sequence() -> None:
    graph = branches()
    plan, loaded = compiled(graph)
    first, *middle, last = (call.name for call in plan.calls)
    waits = _waits(plan)
    heads = [name for name in middle if waits[name] == {first}]
    lanes: list[list[str]] = [[name] for name in heads]
    for name in (name for name in middle if name not in heads):
        next(lane for lane in lanes if waits[name] <= {first, *lane}).append(name)
    beside = [LaneCalls(sum(lanes[::2], [])), LaneCalls(sum(lanes[1::2], []))]
    staged = in_stages(plan, [first, beside, last])
    (region,) = (step for step in steps_of(staged) if isinstance(step, Region))
    assert len(region.lanes) == 2 and len(region.calls) == len(middle)
    inputs = random_arrays(graph, 0)
    wanted = loaded([inputs[name] for name in plan.inputs])
    for one, other in zip(wanted, outputs(staged, graph, 2), strict=True):
        np.testing.assert_array_equal(one, other)
    assert staged.arena_bytes >= plan.arena_bytes, "what is used at a time shares no memory"
    assert planned_memory(staged, ONE_CORE.target).peak_bytes > 0


def test_calls_that_read_indices_stay_alone() -> None:
    b = Builder()
    table = b.add("relu", b.input(9, 4))
    indices = b.input(3, dtype="int64")
    picked = b.add("gather", table, indices, axis=0)
    plan, _ = compiled(b.graph(picked, b.add("sigmoid", table)))
    gather = next(call for call in plan.calls if not may_run_beside(call))
    others = [call.name for call in plan.calls if call is not gather]
    with pytest.raises(InternalError, match="cannot run beside"):
        in_stages(plan, [others[0], [LaneCalls([gather.name]), LaneCalls(others[1:])]])


def test_a_team_without_its_threads_is_refused_and_does_not_wait() -> None:
    b = Builder()
    x = b.input(4, 64)
    plan, _ = compiled(b.graph(b.add("relu", x), b.add("sigmoid", x)))
    one, other = (call.name for call in plan.calls)
    staged = in_stages(plan, [[LaneCalls([one], 2), LaneCalls([other])]])
    with pytest.raises(RuntimeError, match="lanes of 3 threads in a pool that has fewer"):
        outputs(staged, b.graph(), 2)
