"""Plans of networks: what they allow, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.core.targets import parse_resources
from tilewright.graph.arrange import copying
from tilewright.graph.network import TensorType
from tilewright.graph.plan import MAIN, Lane, NetworkPlan, PlannedCall, PlannedTensor
from tilewright.graph.regions import Region, steps_of

KIND = TensorType((1, 256), "float32")
CPU, GPU = "a-cpu", "a-gpu"
LANE = Lane(device=CPU, resources=parse_resources("2t"))
MOVED = {"offset_bytes": 4}
COPY = Candidate(implementation="injective", settings=(), forms=(PLAIN, PLAIN))


def tensor(root: str, device: str = CPU) -> PlannedTensor:
    return PlannedTensor(type=KIND, root=root, device=device)


def call(name: str, source: str, target: str, **more) -> PlannedCall:
    return PlannedCall(
        name=name, workload=copying(KIND), candidate=COPY, inputs=(source,), output=target, **more
    )


def plan(*calls: PlannedCall, **more) -> NetworkPlan:
    named = dict.fromkeys(t for c in calls for t in (*c.inputs, c.output))
    fields = {
        "inputs": ("x",),
        "outputs": ("y",),
        "tensors": {name: tensor(name) for name in (*named, "x", "y")},
        "calls": calls,
        "lanes": {MAIN: LANE},
    }
    return NetworkPlan(**fields | more)


CHAIN = (call("first", "x", "a"), call("second", "a", "b"), call("third", "b", "y"))


def test_a_chain_runs_in_its_order_and_uses_memory_again() -> None:
    found = plan(*CHAIN, call("fourth", "y", "c"))
    assert found.earlier == (0b0, 0b1, 0b11, 0b111)
    assert set(found.memory[CPU].offsets) == {"a", "b", "c"}
    assert found.arena_bytes == 2 * KIND.bytes
    assert not found.in_arena("x") and not found.in_arena("y")
    assert found.only_lane == LANE


def test_calls_of_one_kernel_share_its_name() -> None:
    found = plan(*CHAIN)
    assert len(found.symbols) == 1
    assert {found.symbol(c) for c in found.calls} == {"kernel_0_elementwise"}
    assert found.candidates == {CHAIN[0].task: COPY}


def test_one_task_may_have_a_kernel_per_lane() -> None:
    half = Lane(device=CPU, resources=parse_resources("1t"))
    calls = (call("left", "x", "a", lane="one"), call("right", "x", "y", lane="two"))
    found = plan(*calls, lanes={"one": half, "two": LANE})
    assert len(found.symbols) == 2, "resources are part of what a kernel is built from"
    with pytest.raises(InternalError, match="2 lanes"):
        _ = found.only_lane


def test_lanes_side_by_side_share_no_memory_until_one_waits() -> None:
    lanes = {"one": LANE, "two": LANE}

    def forked(**waits: tuple[str, ...]) -> NetworkPlan:
        return plan(
            call("left", "x", "a", lane="one"),
            call("left end", "a", "y", lane="one"),
            call("right", "x", "b", lane="two", **waits),
            call("right end", "b", "z", lane="two"),
            outputs=("y", "z"),
            lanes=lanes,
        )

    assert forked().arena_bytes == 2 * KIND.bytes
    assert forked(after=("left end",)).arena_bytes == KIND.bytes


def test_what_other_lanes_do_between_two_calls_of_the_main_one_is_a_region() -> None:
    half = Lane(device=CPU, resources=parse_resources("1t"))
    lanes = {MAIN: LANE, "one": half, "two": half}
    begun = call("begin", "x", "a")
    left = call("left", "a", "b", lane="one", after=("begin",))
    more = call("more", "b", "c", lane="one")
    right = call("right", "a", "d", lane="two", after=("begin",))
    cross = call("cross", "d", "e", lane="one", after=("right",))
    end = call("end", "e", "y", after=("cross", "right"))
    found = steps_of(plan(begun, left, right, more, cross, end, lanes=lanes))
    first = Region(lanes=((left, more), (right,)))
    assert found == (begun, first, Region(lanes=((cross,),)), end)
    assert first.calls == (left, more, right)
    assert steps_of(plan(*CHAIN)) == CHAIN


def test_devices_have_arenas_of_their_own_and_transfers_between_them() -> None:
    lanes = {MAIN: LANE, "gpu": Lane(device=GPU, resources=parse_resources("1t"))}
    calls = (
        call("there", "x", "a", lane="gpu", kind="transfer"),
        call("work", "a", "b", lane="gpu"),
        call("back", "b", "y", kind="transfer", after=("work",)),
    )
    tensors = {"x": tensor("x"), "y": tensor("y"), "a": tensor("a", GPU), "b": tensor("b", GPU)}
    found = plan(*calls, lanes=lanes, tensors=tensors)
    assert found.memory[CPU].arena_bytes == 0
    assert found.memory[GPU].arena_bytes == found.arena_bytes == 2 * KIND.bytes


def test_an_output_may_lie_in_an_input() -> None:
    cached = {"x": tensor("x"), "y": tensor("x"), "a": tensor("a")}
    found = plan(call("work", "x", "a"), call("keep", "a", "y"), tensors=cached)
    assert not found.in_arena("y") and found.arena_bytes == KIND.bytes


@pytest.mark.parametrize(
    ("calls", "more", "message"),
    [
        ((CHAIN[0], CHAIN[0]), {}, "two calls have the name 'first'"),
        ((call("first", "x", "y", lane="gpu"),), {}, "lane 'gpu', which is not there"),
        ((call("first", "x", "y", after=("later",)),), {}, "waits for 'later'"),
        ((call("first", "a", "y"),), {}, "reads 'a', which nothing wrote"),
        ((CHAIN[0],), {"outputs": ("z",)}, "an input or an output"),
        ((CHAIN[0],), {"tensors": {"x": tensor("x"), "y": tensor("y")}}, "names 'a'"),
        (
            (CHAIN[0],),
            {"tensors": {"x": tensor("x"), "y": tensor("y"), "a": tensor("b")}},
            "lies in 'b', which has no memory",
        ),
        (
            (CHAIN[0],),
            {"tensors": {"x": tensor("x"), "y": tensor("y"), "a": replace(tensor("y"), **MOVED)}},
            "ends behind 'y'",
        ),
        (
            (CHAIN[0],),
            {"tensors": {"x": tensor("x"), "y": tensor("y"), "a": tensor("a", GPU)}},
            "'a' is elsewhere",
        ),
        (
            (call("write", "x", "a", lane="one"), call("read", "a", "y", lane="two")),
            {"lanes": {"one": LANE, "two": LANE}},
            "'write' and 'read' use 'a' in no certain order",
        ),
        (
            (call("read", "x", "y", lane="one"), call("write", "y", "z", lane="two")),
            {
                "lanes": {"one": LANE, "two": LANE},
                "tensors": {"x": tensor("x"), "y": tensor("y"), "z": tensor("x")},
            },
            "in no certain order",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_out_is_refused(calls, more, message) -> None:
    with pytest.raises(InternalError, match=message):
        plan(*calls, **more)
