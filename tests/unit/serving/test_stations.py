"""What a place's process has loaded, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from helpers.fakes.toy_serving import QUICK
from tilewright.core.errors import TilewrightError
from tilewright.core.processes import ChildError, RemoteError
from tilewright.deploy.compiled_parts import CompiledPart
from tilewright.graph.network import Array
from tilewright.graph.parts import Place
from tilewright.serving.batches import ToLoad
from tilewright.serving.flows import Flow, Flows, LoadedPart, LoadedWay
from tilewright.serving.slots import SlotPlan
from tilewright.serving.stations import Station
from tilewright.serving.staying import Copied

HERE: Place = ("llvm", (0,))


class FakePost:
    """A process that refuses to start with a part that is called "bad"; `opened` are the parts of
    each start, `happens` is what becomes of it in its next run."""

    cores: tuple[int, ...] = (0,)
    copies: tuple[Copied, ...] = ()

    def __init__(self) -> None:
        self.pid: int | None = None
        self.there, self.opened = set[str](), list[list[str]]()
        self.happens: Callable[[], None] | None = None

    def open(self, loads: Iterable[ToLoad], limit_s: float) -> None:
        self.pid, keys = 1, [each.key for each in loads]
        self.there.clear()
        self.opened.append(keys)
        if "bad" in keys:
            raise RemoteError("InputError", "bad is refused")
        self.there.update(keys)

    def load(self, load: ToLoad, limit_s: float) -> None:
        self.there.add(load.key)

    def run(
        self,
        key: str,
        slots: Sequence[int],
        limit_s: float,
        size: int = 1,
        orders: Sequence[int] = (0,),
    ) -> dict[int, Array]:
        if key not in self.there:
            raise RemoteError("KeyError", key)
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return {}

    def abort(self) -> None:
        self.pid = None

    def stop(self) -> None:
        self.pid = None


class Silent:
    """Nobody watches."""

    def retried(self, flow: Flow) -> None: ...
    def tell(self, message: str) -> None: ...
    def lost(self, place: Place) -> None: ...
    def found(self, place: Place) -> None: ...
    def slower(self, place: Place, factor: float) -> None: ...


def loaded(key: str) -> LoadedPart:
    part = CompiledPart(
        name=key,
        network="net",
        place=HERE,
        inputs=(),
        outputs=(),
        folder=Path(),
        constants=(),
        after=(),
        expected_s=1.0,
    )
    return LoadedPart(key=key, part=part, plan=SlotPlan(inputs=(), outputs=(), size_bytes=0))


class AtWork:
    """A place where the part "good" is computed."""

    def __init__(self) -> None:
        self.post, self.flows, self.good = FakePost(), Flows(), loaded("good")
        self.station = Station(0, HERE, self.post, self.flows, QUICK, Silent())
        self.station.load([self.good]).result(10)

    def computed(self) -> Exception | None:
        """What a request ended in."""
        ended, way = Future[Exception | None](), LoadedWay(parts={"net": [self.good]})

        def done(_flow: Flow, fault: Exception | None) -> None:
            ended.set_result(fault)

        self.flows.add(Flow(network="net", slot=0, order=0, way=way, done=done))
        return ended.result(10)


@pytest.fixture
def work() -> Generator[AtWork]:
    found = AtWork()
    yield found
    found.station.stop()
    found.station.join()


def test_a_start_that_fails_at_new_parts_leaves_no_process_without_the_old_ones(
    work: AtWork,
) -> None:
    orders: list[Future[None]] = []

    def end_and_order() -> None:
        work.post.pid = None
        orders.append(work.station.load([loaded("bad")]))

    work.post.happens = end_and_order
    assert work.computed() is None
    with pytest.raises(TilewrightError, match="bad is refused"):
        orders[0].result(10)
    assert work.computed() is None
    assert work.post.opened == [["good"], ["good", "bad"], ["good"]]


def test_a_process_that_starts_with_new_parts_is_whole(work: AtWork) -> None:
    orders: list[Future[None]] = []

    def crash_and_order() -> None:
        orders.append(work.station.load([loaded("new")]))
        raise ChildError("gone")

    work.post.happens = crash_and_order
    assert work.computed() is None
    orders[0].result(10)
    assert work.computed() is None
    assert work.post.opened == [["good"], ["good", "new"]]
