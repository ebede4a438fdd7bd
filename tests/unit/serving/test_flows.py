"""Which part begins next: as the plan says, counted from when requests came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tilewright.deploy.compiled_parts import CompiledPart
from tilewright.graph.parts import Place
from tilewright.serving.flows import Flow, Flows, LoadedPart, LoadedWay, Span
from tilewright.serving.slots import SlotPlan

LEFT, RIGHT, BOTH = ("llvm", (0,)), ("llvm", (1,)), ("llvm", (0, 1))


def way(parts: Mapping[str, Sequence[tuple[Place, float, tuple[int, ...]]]]) -> LoadedWay:
    """Parts of networks: where each runs, when it is to begin, and what it waits for."""
    return LoadedWay(
        parts={
            network: [
                LoadedPart(
                    key=f"{network} {number}",
                    part=CompiledPart(
                        name=f"{network} {number}",
                        network=network,
                        place=place,
                        inputs=(),
                        outputs=(),
                        folder=Path(),
                        constants=(),
                        after=after,
                        expected_s=1.0,
                        begin_s=begin_s,
                    ),
                    plan=SlotPlan(inputs=(), outputs=(), size_bytes=0),
                )
                for number, (place, begin_s, after) in enumerate(each)
            ]
            for network, each in parts.items()
        }
    )


def flow(network: str, on: LoadedWay, came_s: float = 0.0, order: int = 0) -> Flow:
    return Flow(
        network=network, slot=0, order=order, way=on, came_s=came_s, done=lambda _flow, _fault: None
    )


def end(flows: Flows, taken: tuple[Flow, int]) -> None:
    flow, number = taken
    part = flow.parts[number].part
    span = Span(part=part.name, network=part.network, place=part.place, begin_s=0.0, end_s=1.0)
    flows.ended(flow, number, span, {})


def test_a_request_that_turns_goes_around_what_is_lost_on_its_next_way() -> None:
    """Not what its old way needed: that it has left."""
    first, second, third = (way({"a": [(place, 0.0, ())]}) for place in (LEFT, RIGHT, BOTH))
    flows = Flows()
    flows.add(flow("a", first))
    taken = flows.take(LEFT, 0.0)
    assert taken is not None
    flows.turn(second, {LEFT})
    flows.turn(third, {LEFT})
    assert taken[0].turn_to is second
    flows.turn(third, {RIGHT})
    assert taken[0].turn_to is third


def test_requests_that_come_at_a_time_do_as_is_planned() -> None:
    """The network that is named first waits, as planned, for what the other does on both cores."""
    both = way({"small": [(LEFT, 2.0, ())], "large": [(BOTH, 0.0, ()), (RIGHT, 2.0, (0,))]})
    flows = Flows()
    flows.add(flow("small", both, order=0), flow("large", both, order=1))
    assert flows.take(LEFT, 0.0) is None and flows.take(RIGHT, 0.0) is None
    first = flows.take(BOTH, 0.0)
    assert first is not None and first[0].network == "large"
    end(flows, first)
    beside = flows.take(LEFT, 0.0), flows.take(RIGHT, 0.0)
    assert [taken and taken[0].network for taken in beside] == ["small", "large"]


def test_nothing_begins_before_all_are_there() -> None:
    both = way({"a": [(LEFT, 0.0, ())], "b": [(RIGHT, 0.0, ())]})
    flows = Flows()
    flows.gather(2)
    flows.add(flow("a", both))
    assert flows.take(LEFT, 0.0) is None
    flows.add(flow("b", both))
    assert flows.take(LEFT, 0.0) is not None and flows.take(RIGHT, 0.0) is not None
    flows.gather(2)
    flows.gather(0)  # one of them was refused
    flows.add(flow("a", both))
    assert flows.take(LEFT, 0.0) is None, "its core is taken"


@given(
    st.lists(
        st.tuples(st.sampled_from([LEFT, RIGHT, BOTH]), st.floats(0, 3), st.floats(0, 3)),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_due_first_begins_first_and_cores_are_never_shared(
    requests: list[tuple[Place, float, float]],
) -> None:
    flows, running, due = Flows(), list[tuple[Flow, int]](), dict[Flow, float]()
    for number, (place, begin_s, came_s) in enumerate(requests):
        added = flow("n", way({"n": [(place, begin_s, ())]}), came_s, number)
        due[added] = came_s + begin_s
        flows.add(added)
    while due or running:
        for place in (LEFT, RIGHT, BOTH):
            taken = flows.take(place, 0.0)
            if taken is None:
                continue
            mine = set(place[1])
            others = [each.parts[n].part.place[1] for each, n in running]
            assert not mine & {core for cores in others for core in cores}
            wants = {f: set(f.parts[0].part.place[1]) for f in due}
            earlier = [f for f in due if due[f] < due[taken[0]] and wants[f] & mine]
            assert not earlier
            del due[taken[0]]
            running.append(taken)
        assert running, "something can always begin"
        end(flows, running.pop(0))
