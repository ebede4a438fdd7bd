"""Lanes in compiled networks: the same results, and nothing that the plan forbids."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from helpers.networks.small_networks import PLACEMENT, Builder, built, compiled, random_arrays
from tilewright.compiler.execute import LoadedNetwork, set_threads
from tilewright.compiler.network import compile_network
from tilewright.core.errors import InternalError
from tilewright.graph.marks import Marks
from tilewright.graph.network import Graph
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.regions import Region, steps_of
from tilewright.hardware.device import local_placement
from tilewright.kernels.planned_memory import CompiledNetwork, planned_memory
from tilewright.kernels.plans import packed_constant, with_candidates
from tilewright.plan.lanes import LaneCalls, Stage, in_stages, may_run_beside

ONE_CORE = local_placement(1)
MEBIBYTE = 1 << 20


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


def whole_planes(plan: NetworkPlan) -> NetworkPlan:
    """The plan with convolutions by Winograd's algorithm that keep whole planes of tiles."""
    wanted = {
        call.task: structs.replace(
            call.candidate, settings=tuple(sorted({**own, "strip": 0}.items()))
        )
        for call in plan.calls
        for own in [dict(call.candidate.settings)]
        if "strip" in own
    }
    assert wanted
    return with_candidates(plan, {**plan.candidates, **wanted})


def test_what_a_team_shares_is_in_the_told_memory() -> None:
    """Buffers of all calls of a team are there together, while the sequence takes its in turn: what
    is told of the first run is what this process grows by."""
    b = Builder()
    x = b.input(1, 64, 96, 96)
    twice = b.conv(b.add("relu", b.conv(x, 64)), 64)
    graph = b.graph(twice, b.add("sigmoid", x))
    plan = whole_planes(compiled(graph)[0])
    *left, right = (call.name for call in plan.calls)
    staged = in_stages(plan, [[LaneCalls(left, 2), LaneCalls([right])]])
    executable, workspaces = compile_network(staged, ONE_CORE.target)
    library = CompiledNetwork(workspaces=workspaces, library_bytes=0)
    told = planned_memory(staged, ONE_CORE.target, library)
    foretold = planned_memory(staged, ONE_CORE.target).workspace_bytes
    alone = planned_memory(plan, ONE_CORE.target).workspace_bytes
    assert told.workspace_bytes == pytest.approx(foretold, rel=0.1)
    assert foretold == 2 * alone > 20 * MEBIBYTE
    weights = {
        each.name: tvm.runtime.tensor(packed_constant(each, dict(graph.constants)))
        for each in staged.constants
    }
    loaded = LoadedNetwork(executable.jit(), weights, staged.constant_names)
    arrays = random_arrays(graph, 0)
    given = [arrays[name] for name in staged.inputs]

    def grown() -> int:
        set_threads(3, [0] * 3)
        start = resident_bytes()
        kept = loaded(given)
        return resident_bytes() - start - sum(array.nbytes for array in kept)

    with ThreadPoolExecutor(1) as thread:
        real = thread.submit(grown).result()
    results = sum(staged.tensors[name].bytes for name in staged.outputs)
    assert real == pytest.approx(told.workspace_bytes + told.arena_bytes + results, rel=0.1)


def resident_bytes() -> int:
    """Of this process, without what it has freed."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_each_call_notes_when_it_began_and_ended() -> None:
    graph = branches()
    plan, loaded = compiled(graph)
    first, *middle, last = (call.name for call in plan.calls)
    waits = _waits(plan)
    pair = [name for name in middle if waits[name] == {first}][:2]
    after = [name for name in middle if name not in pair]
    staged = in_stages(plan, [first, [LaneCalls(pair[:1], 2), LaneCalls(pair[1:])], *after, last])
    marks = Marks(staged)
    constants = dict(graph.constants)
    timed = LoadedNetwork.compiled(staged, PLACEMENT.target, constants, timed=True)
    inputs = [random_arrays(graph, 0)[name] for name in plan.inputs]
    with ThreadPoolExecutor(1) as thread:
        thread.submit(set_threads, 3, [0] * 3).result()
        runs = thread.submit(timed.marks, inputs, marks.rows, 2).result()
        np.testing.assert_array_equal(thread.submit(timed, inputs).result()[0], loaded(inputs)[0])
    assert len(runs) == 2 and not np.array_equal(*runs)
    for run in runs:
        noted = {each.call: each for each in marks.read(run)}
        assert [*noted] == [first, *pair, *after, last]
        assert [noted[name].threads for name in pair] == [range(2), range(2, 3)]
        assert all(each.begin_s < each.end_s for each in noted.values())
        turn = [[first], pair, *([name] for name in after), [last]]
        for before, behind in pairwise(turn):
            ended = max(noted[name].end_s for name in before)
            assert ended <= min(noted[name].begin_s for name in behind)
