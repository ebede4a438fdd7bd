"""The scale of a machine: from two kernels beside each other into what planners read."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.events import discard
from tilewright.core.processes import ChildCrash
from tilewright.core.records import Placement
from tilewright.core.targets import MemoryLevel
from tilewright.cost.contention import USUAL_CONTENTION_BYTES_PER_S
from tilewright.measure import contention
from tilewright.measure.contention import keep_contention, measured_contention
from tilewright.measure.pairs import PairTimes
from tilewright.predict.modelling import Predictors
from tilewright.store import open_store

LEVELS = tuple(MemoryLevel(name=f"L{n}", bytes=1 << 10 * n) for n in (1, 2, 3))
FOUR = altered(PLACEMENT, access="here", cpus=(3, 5, 6, 7), threads=4, memory=LEVELS)
ALONE_S = (32 << 20) / 32e9, (64 << 20) / 16e9


class Pairs:
    """Stands for two processes, in which kernels that stream 32 and 16 GB/s are slowed down."""

    cpus: tuple[tuple[int, ...], ...] = ()
    fails = False

    def __init__(self, placements: tuple[Placement, Placement]) -> None:
        Pairs.cpus = tuple(place.binding.cpus for place in placements)

    def __enter__(self) -> Pairs:
        return self

    def __exit__(self, *_exception: object) -> None: ...

    def times(self, pair: object) -> PairTimes:
        if self.fails:
            raise ChildCrash(-11, "")
        first, second = ALONE_S
        return PairTimes(alone_s=((first,), (second,)), beside_s=((1.5 * first,), (1.5 * second,)))


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "KernelPairs", Pairs)


def test_it_is_kept_for_the_class_and_read_on_any_number_of_cores(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.db") as store:
        known = Predictors(
            placement=FOUR, store=store, folder=tmp_path, cache=tmp_path, events=discard
        )
        assert known.contention_bytes_per_s == USUAL_CONTENTION_BYTES_PER_S
        keep_contention(store, FOUR)
        assert Pairs.cpus == ((3,), (5,))
        assert known.contention_bytes_per_s == pytest.approx((32e9 * 16e9 / 0.5) ** 0.5, rel=0.01)


def test_where_it_cannot_be_measured_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured_contention(altered(FOUR, cpus=(3,))) is None
    assert measured_contention(altered(FOUR, access="simulated")) is None
    monkeypatch.setattr(Pairs, "fails", True)
    assert measured_contention(FOUR) is None
    with open_store(tmp_path / "t.db") as store:
        keep_contention(store, FOUR)
        assert store.placements() == []
