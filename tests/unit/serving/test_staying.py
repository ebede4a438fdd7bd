"""What stays on a GPU, and what is computed again when its process is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from tilewright.compiler.cuda.driver import Driver, Memory
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.deploy.compiled_parts import CompiledPart
from tilewright.graph.parts import Place
from tilewright.serving.flows import Flow, Flows, LoadedPart, LoadedWay, Span
from tilewright.serving.gpu_worker import PartsOnGpu, _Part
from tilewright.serving.slots import SharedSlots, SlotPlan
from tilewright.serving.staying import Stays, staying

CPU, GPU = ("llvm", (0,)), ("cuda", (0,))


def part(
    place: Place, reads: tuple[str, ...], writes: tuple[str, ...], after: tuple[int, ...] = ()
) -> CompiledPart:
    return CompiledPart(
        name=writes[0],
        network="net",
        place=place,
        inputs=reads,
        outputs=writes,
        folder=Path(),
        constants=(),
        after=after,
        expected_s=1.0,
    )


PARTS = (
    part(CPU, ("x",), ("stem",)),
    part(GPU, ("stem",), ("left",), (0,)),
    part(CPU, ("stem",), ("beside",), (0,)),
    part(GPU, ("stem", "left", "beside"), ("right",), (0, 1, 2)),
    part(CPU, ("right",), ("y",), (3,)),
)


def test_what_only_the_gpu_reads_stays_there() -> None:
    left, right = (staying(PARTS, number, ["y"]) for number in (1, 3))
    assert left == Stays(
        inputs=("stem",),
        outputs=("left",),
        kept=frozenset({"stem", "left"}),
        only_here=frozenset(),
        sent=frozenset(),
    )
    assert right.only_here == {"left"} and right.kept == {"stem"}
    assert right.sent == {"right"}


def test_outputs_of_the_network_are_sent_though_the_gpu_reads_them_too() -> None:
    made = staying(PARTS, 1, ["y", "left"])
    assert made.sent == {"left"} and "left" in made.kept
    assert not staying(PARTS, 3, ["y", "left"]).only_here


def way() -> LoadedWay:
    nothing = SlotPlan(inputs=(), outputs=(), size_bytes=0)
    return LoadedWay(
        parts={
            "net": [
                LoadedPart(
                    key=each.name,
                    part=each,
                    plan=nothing,
                    stays=staying(PARTS, number, ["y"]) if each.place == GPU else None,
                )
                for number, each in enumerate(PARTS)
            ]
        }
    )


def computed(flows: Flows, flow: Flow, place: Place) -> str:
    """The part that runs next at a place, and ends."""
    taken = flows.take(place, 0.0)
    assert taken is not None
    made = flow.parts[taken[1]].part
    span = Span(part=made.name, network="net", place=place, begin_s=0.0, end_s=1.0)
    flows.ended(flow, taken[1], span, {})
    return made.name


def test_what_lay_on_a_lost_gpu_alone_is_computed_again() -> None:
    flows = Flows()
    flow = Flow(network="net", slot=0, order=0, way=way(), done=lambda _flow, _fault: None)
    flows.add(flow)
    made = [computed(flows, flow, place) for place in (CPU, GPU, CPU)]
    assert made == ["stem", "left", "beside"]
    flows.forget(CPU)
    assert flow.ended == {0, 1, 2}, "what others wrote lies in the slot"
    flows.forget(GPU)
    assert flow.ended == {0, 2} and flows.take(CPU, 0.0) is None
    assert [computed(flows, flow, GPU) for _ in range(2)] == ["left", "right"]
    flows.forget(GPU)
    assert flow.ended == {0, 1, 2, 3}, "nobody has to read it any more"
    assert computed(flows, flow, CPU) == "y" and flow.complete


def test_what_is_computed_again_reads_what_is_computed_again() -> None:
    """Of a chain on the GPU all but what was copied back."""
    chain = (
        part(GPU, ("x",), ("a",)),
        part(GPU, ("a",), ("b",), (0,)),
        part(GPU, ("b",), ("y",), (1,)),
    )
    loaded = [
        LoadedPart(key=each.name, part=each, plan=SlotPlan(inputs=(), outputs=(), size_bytes=0))
        for each in chain
    ]
    stays = [staying(chain, number, ["y"]) for number in range(len(chain))]
    ways = LoadedWay(
        parts={"net": [replace(one, stays=each) for one, each in zip(loaded, stays, strict=True)]}
    )
    flows = Flows()
    flow = Flow(network="net", slot=0, order=0, way=ways, done=lambda _flow, _fault: None)
    flows.add(flow)
    assert [computed(flows, flow, GPU) for _ in range(2)] == ["a", "b"]
    flows.forget(GPU)
    assert not flow.ended and not flow.begun


class FakeDriver:
    """Counts what is allocated."""

    def __init__(self) -> None:
        self.allocated: list[Memory] = []

    def allocate(self, size: int) -> Memory:
        self.allocated.append(Memory(address=1 << 10 + len(self.allocated), bytes=size))
        return self.allocated[-1]

    def copy(self, goal: Memory, origin: Memory) -> None:
        assert goal.bytes == origin.bytes


class FakeNetwork:
    """One output of some bytes."""

    def __init__(self, size: int) -> None:
        self._result = Memory(address=0, bytes=size)

    def result(self, _number: int) -> Memory:
        return self._result

    def compute(self) -> None: ...
    def check(self) -> None: ...


def test_memory_of_requests_that_ended_is_used_again() -> None:
    """Whatever their slots, and whichever networks they are for; that of others is kept."""
    driver = FakeDriver()
    parts = PartsOnGpu(lambda _target: cast(Driver, driver))
    parts._driver, parts._slots = cast(Driver, driver), cast(SharedSlots, object())
    nothing = SlotPlan(inputs=(), outputs=(None,), size_bytes=0)
    for name, size in (("a", 64), ("b", 64), ("c", 128)):
        stays = Stays(
            inputs=(),
            outputs=(name,),
            kept=frozenset({name}),
            only_here=frozenset(),
            sent=frozenset(),
        )
        network = cast(LoadedCudaNetwork, FakeNetwork(size))
        parts._parts[name] = _Part(network=network, plan=nothing, stays=stays)
    parts.run("a", 0, (0,))
    parts.run("b", 1, (1, 0))
    kept = {at: each.memory for at, each in parts._kept.items()}
    assert kept.keys() == {(0, "a"), (1, "b")} and len(set(kept.values())) == 2
    parts.run("b", 2, (2, 1))
    assert parts._kept[1, "b"].memory == kept[1, "b"]
    assert parts._kept[2, "b"].memory == kept[0, "a"], "the first request has ended"
    for order in range(3, 40):
        parts.run("abc"[order % 3], order % 16, (order,))
    assert [each.bytes for each in driver.allocated] == [64, 64, 128]
