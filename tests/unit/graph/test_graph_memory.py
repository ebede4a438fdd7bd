"""The arena: buffers that may be in use together never overlap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.graph_arrangement import LANE, arranged
from helpers.networks.graph_builder import Builder
from tilewright.graph.plan import (
    ALIGNMENT_BYTES,
    Buffer,
    MemoryPlan,
    NetworkPlan,
    aligned,
    plan_memory,
)


def in_sequence(calls: int) -> tuple[int, ...]:
    """For each of so many calls that run one after the other, the earlier ones as bits."""
    return tuple((1 << number) - 1 for number in range(calls))


def last(buffer: Buffer) -> int:
    """The last call that reads or writes a buffer."""
    return buffer.calls.bit_length() - 1


@dataclass(frozen=True)
class Schedule:
    """Buffers, and for each call what has ended before it."""

    buffers: list[Buffer]
    earlier: tuple[int, ...]

    @property
    def plan(self) -> MemoryPlan:
        return plan_memory(self.buffers, self.earlier)


def spanning(name: str, size: int, first: int, last: int) -> Buffer:
    calls = sum(1 << number for number in range(first, last + 1))
    return Buffer(name=name, bytes=size, calls=calls)


@st.composite
def sequences(draw: st.DrawFn) -> Schedule:
    found: list[Buffer] = []
    for number in range(draw(st.integers(0, 24))):
        first = draw(st.integers(0, 20))
        last = first + draw(st.integers(0, 8))
        found.append(spanning(f"b{number}", draw(st.integers(0, 3000)), first, last))
    return Schedule(found, in_sequence(30))


@st.composite
def partial_orders(draw: st.DrawFn) -> Schedule:
    """Calls that each wait for some of the earlier ones; buffers that some calls touch."""
    count = draw(st.integers(1, 10))
    earlier: list[int] = []
    for number in range(count):
        ended = 0
        for wait in range(number):
            if draw(st.booleans()):
                ended |= earlier[wait] | 1 << wait
        earlier.append(ended)
    buffers = [
        Buffer(
            name=f"b{number}",
            bytes=draw(st.integers(0, 3000)),
            calls=draw(st.integers(1, (1 << count) - 1)),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    return Schedule(buffers, tuple(earlier))


def apart(plan: MemoryPlan, one: Buffer, other: Buffer) -> bool:
    begin, start = plan.offsets[one.name], plan.offsets[other.name]
    return begin + one.bytes <= start or start + other.bytes <= begin


@settings(max_examples=200, deadline=None)
@given(sequences())
def test_buffers_alive_together_are_apart(items: Schedule) -> None:
    plan = items.plan
    assert set(plan.offsets) == {item.name for item in items.buffers}
    for index, one in enumerate(items.buffers):
        begin = plan.offsets[one.name]
        assert begin % ALIGNMENT_BYTES == 0
        assert begin >= 0 and begin + one.bytes <= plan.arena_bytes
        for other in items.buffers[:index]:
            if one.first <= last(other) and other.first <= last(one):
                assert apart(plan, one, other)


@settings(max_examples=200, deadline=None)
@given(partial_orders(), st.randoms(use_true_random=False))
def test_no_order_that_keeps_the_waits_overwrites_anything(items: Schedule, chance) -> None:
    """In any order that the waits allow, buffers between their first and last call are apart."""
    order: list[int] = []
    while len(order) < len(items.earlier):
        ended = sum(1 << call for call in order)
        ready = [n for n, e in enumerate(items.earlier) if n not in order and not e & ~ended]
        order.append(chance.choice(ready))
    spans: dict[str, tuple[int, int]] = {}
    for buffer in items.buffers:
        moments = [moment for moment, call in enumerate(order) if buffer.calls >> call & 1]
        spans[buffer.name] = min(moments), max(moments)
    plan = items.plan
    for index, one in enumerate(items.buffers):
        for other in items.buffers[:index]:
            (first, last), (begin, end) = spans[one.name], spans[other.name]
            if first <= end and begin <= last:
                assert apart(plan, one, other)


@settings(max_examples=100, deadline=None)
@given(sequences(), st.randoms(use_true_random=False))
def test_the_arena_is_between_floor_and_sum_and_independent_of_order(
    items: Schedule, shuffler
) -> None:
    plan, buffers = items.plan, items.buffers
    alive = [
        sum(aligned(i.bytes) for i in buffers if i.first <= moment <= last(i))
        for moment in range(30)
    ]
    assert max(alive) <= plan.arena_bytes <= sum(aligned(item.bytes) for item in buffers)
    shuffled = list(buffers)
    shuffler.shuffle(shuffled)
    assert plan_memory(shuffled, items.earlier) == plan


def test_memory_is_used_again() -> None:
    chain = [spanning(f"t{i}", 1000, i, i + 1) for i in range(10)]
    plan = plan_memory(chain, in_sequence(11))
    assert plan.arena_bytes == 2 * aligned(1000)
    assert plan_memory([], ()).arena_bytes == 0


def test_what_may_run_side_by_side_shares_nothing() -> None:
    buffers = [spanning("left", 64, 0, 0), spanning("right", 64, 1, 1)]
    assert plan_memory(buffers, (0, 1)).arena_bytes == 64, "one after the other"
    assert plan_memory(buffers, (0, 0)).arena_bytes == 128, "neither waits for the other"


@settings(max_examples=100, deadline=None)
@given(partial_orders(), st.integers(0, 12))
def test_more_buffers_are_placed_around_those_that_lie_there(items: Schedule, count: int) -> None:
    first, more = items.buffers[:count], items.buffers[count:]
    before = plan_memory(first, items.earlier)
    known = [(before.offsets[buffer.name], buffer) for buffer in first]
    plan = plan_memory(more, items.earlier, known)
    assert {name: plan.offsets[name] for name in before.offsets} == before.offsets
    assert plan.arena_bytes >= before.arena_bytes
    for index, one in enumerate(items.buffers):
        for other in items.buffers[:index]:
            if one.calls & other.calls:
                assert apart(plan, one, other)


def with_shortcuts(*, read_again: bool = False, handed_out: bool = False) -> NetworkPlan:
    """x = conv(input); y = x + conv(conv(x)); z = y + conv(conv(y)); and a convolution of z, where
    kernels read what they add before they write. `read_again`: the last one adds x, too.
    `handed_out`: x is a result."""
    b = Builder()
    x = b.conv(b.input(1, 8, 6, 6), 8)
    y = b.add("add", b.conv(b.conv(x, 8), 8), x)
    z = b.add("add", b.conv(b.conv(y, 8), 8), y)
    last = b.conv(z, 8)
    outputs = [b.add("add", last, x) if read_again else last, *([x] if handed_out else [])]
    plan = arranged(b.graph(*outputs))
    calls = [replace(call, overwritable=tuple(range(2, len(call.inputs)))) for call in plan.calls]
    assert [len(call.inputs) for call in calls][:5] == [2, 2, 3, 2, 3]
    return replace(plan, calls=tuple(calls))


def shortcuts(plan: NetworkPlan) -> tuple[str, str, str]:
    """x, y and z."""
    return plan.calls[0].output, plan.calls[2].output, plan.calls[4].output


def test_results_are_written_over_what_nobody_reads_again() -> None:
    plan = with_shortcuts()
    x, y, z = shortcuts(plan)
    memory = plan.memory[LANE.device]
    assert plan.overwritten == {y: x, z: x}
    assert memory.offsets[x] == memory.offsets[y] == memory.offsets[z]
    assert memory.arena_bytes == 2 * plan.tensors[x].bytes
    assert plan.memory_with(LANE.device, []).arena_bytes == memory.arena_bytes


@pytest.mark.parametrize("kept", [{"read_again": True}, {"handed_out": True}])
def test_what_is_read_again_or_handed_out_is_not_overwritten(kept: dict[str, bool]) -> None:
    plan = with_shortcuts(**kept)
    _, y, z = shortcuts(plan)
    assert plan.overwritten == {z: y}


def test_an_operand_is_not_overwritten_while_another_lane_may_read_it() -> None:
    plan = with_shortcuts()
    x, y, z = shortcuts(plan)
    first, second, third, *rest = plan.calls
    beside = replace(second, name="beside", output="beside", lane="other", after=(first.name,))
    both = replace(
        plan,
        tensors={**plan.tensors, "beside": replace(plan.tensors[y], root="beside")},
        lanes={**plan.lanes, "other": LANE},
        calls=(first, beside, second, third, *rest),
    )
    assert both.overwritten == {z: y}
    waiting = replace(third, after=("beside",))
    assert replace(both, calls=(first, beside, second, waiting, *rest)).overwritten == {y: x, z: x}
