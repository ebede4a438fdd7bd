"""The arena: buffers alive together never overlap."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.graph.memory import ALIGNMENT_BYTES, Lifetime, aligned, plan_memory


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found: list[Lifetime] = []
    for number in range(draw(st.integers(0, 24))):
        first = draw(st.integers(0, 20))
        found.append(
            Lifetime(
                name=f"b{number}",
                bytes=draw(st.integers(0, 3000)),
                first=first,
                last=first + draw(st.integers(0, 8)),
            )
        )
    return found


@settings(max_examples=200, deadline=None)
@given(lifetimes())
def test_buffers_alive_together_are_apart(items: list[Lifetime]) -> None:
    plan = plan_memory(items)
    assert set(plan.offsets) == {item.name for item in items}
    for index, one in enumerate(items):
        begin = plan.offsets[one.name]
        assert begin % ALIGNMENT_BYTES == 0
        assert begin >= 0 and begin + one.bytes <= plan.arena_bytes
        for other in items[:index]:
            if one.overlaps(other):
                start = plan.offsets[other.name]
                assert begin + one.bytes <= start or start + other.bytes <= begin


@settings(max_examples=100, deadline=None)
@given(lifetimes(), st.randoms(use_true_random=False))
def test_the_arena_is_between_floor_and_sum_and_independent_of_order(items, shuffler) -> None:
    plan = plan_memory(items)
    assert plan.floor_bytes <= plan.arena_bytes <= sum(aligned(item.bytes) for item in items)
    alive = [
        sum(aligned(i.bytes) for i in items if i.first <= moment <= i.last) for moment in range(30)
    ]
    assert plan.floor_bytes == max(alive)
    shuffled = list(items)
    shuffler.shuffle(shuffled)
    assert plan_memory(shuffled) == plan


def test_memory_is_used_again() -> None:
    chain = [Lifetime(name=f"t{i}", bytes=1000, first=i, last=i + 1) for i in range(10)]
    plan = plan_memory(chain)
    assert plan.arena_bytes == plan.floor_bytes == 2 * aligned(1000)
    assert plan_memory([]).arena_bytes == 0
