"""What two take beside each other: only calls that really ran beside the other one count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.processes import ChildCrash, ChildError, ChildTimeout
from tilewright.core.timings import Burst
from tilewright.measure import beside
from tilewright.measure.beside import Player, running
from tilewright.measure.pairs import PairTimes, pair_times, per_call_s

SLICE_S = 1e-3


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as opened:
        yield opened


class Machine:
    """Players whose calls take longer while the other one runs."""

    def __init__(self) -> None:
        self.playing: set[str] = set()

    def player(self, name: str, alone_s: float, slowdown: float) -> Player:
        def play(files: tuple[Path, Path]) -> list[Burst]:
            flag, started = files
            self.playing.add(name)
            started.touch()
            found: list[Burst] = []
            while flag.exists():
                before = len(self.playing)
                began_s = time.perf_counter()
                time.sleep(SLICE_S)
                each_s = alone_s * (slowdown if before == len(self.playing) == 2 else 1.0)
                found.append(Burst(began_s, time.perf_counter(), 4, 4 * each_s))
            self.playing.discard(name)
            return found

        return play


def test_both_slowdowns_come_from_one_run(pool: ThreadPoolExecutor) -> None:
    machine = Machine()
    first, second = machine.player("a", 1e-5, 1.5), machine.player("b", 2e-5, 1.25)
    times = pair_times((first, second), pool, rounds=3, window_s=0.02)
    assert times.alone_s == (pytest.approx((1e-5,) * 3), pytest.approx((2e-5,) * 3))
    assert times.slowdowns == pytest.approx((1.5, 1.25))
    assert times.spread == pytest.approx(0.0, abs=1e-9)
    assert times.joint_gain == pytest.approx(1 / 1.5 + 1 / 1.25)


def test_rounds_that_differ_are_told() -> None:
    alone, one = (1.0, 1.0, 1.0), (2.0, 2.0, 2.0)
    times = PairTimes(alone_s=(alone, one), beside_s=((1.0, 1.2, 1.1), one))
    assert times.slowdowns == pytest.approx((1.1, 1.0))
    assert times.spread == pytest.approx(0.2 / 1.1)


@given(
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(1e-6, 1e-3)), min_size=1, max_size=8),
    st.floats(-1.0, 4.0),
    st.floats(0.0, 4.0),
)
def test_bursts_count_within_a_span(
    lengths: list[tuple[float, float]], begin_s: float, length_s: float
) -> None:
    bursts: list[Burst] = []
    at_s = 0.0
    for taken_s, each_s in lengths:
        bursts.append(Burst(at_s, at_s + taken_s, 3, 3 * each_s))
        at_s = bursts[-1].end_s
    end_s = begin_s + length_s
    within = [b.busy_s / 3 for b in bursts if begin_s <= b.begin_s and b.end_s <= end_s]
    if within:
        assert per_call_s(bursts, (begin_s, end_s)) == pytest.approx(median(within))
    else:
        with pytest.raises(ChildError, match="no call ran"):
            per_call_s(bursts, (begin_s, end_s))


def crashing(_files: tuple[Path, Path]) -> list[Burst]:
    raise ChildCrash(-11, "")


def early(files: tuple[Path, Path]) -> list[Burst]:
    files[1].touch()
    return []


def never(files: tuple[Path, Path]) -> list[Burst]:
    while files[0].exists():
        time.sleep(SLICE_S)
    return []


@pytest.mark.parametrize(
    ("faulty", "error", "message"),
    [
        (crashing, ChildCrash, "SIGSEGV"),
        (early, ChildError, "ended before"),
        (never, ChildTimeout, "did not begin"),
    ],
)
def test_a_partner_that_fails_leaves_no_times(
    pool: ThreadPoolExecutor, faulty: Player, error: type[Exception], message: str
) -> None:
    kept: list[bool] = []
    with pytest.raises(error, match=message), running([faulty], pool, begin_s=0.05):
        time.sleep(0.05)
        kept.append(True)
    assert kept == [True] if faulty is early else not kept


def test_what_a_block_raises_stops_who_runs_beside(pool: ThreadPoolExecutor) -> None:
    machine = Machine()
    with pytest.raises(KeyError), running([machine.player("a", 1e-5, 1.0)], pool, 1.0):
        assert machine.playing == {"a"}
        raise KeyError
    assert not machine.playing


def test_files_are_gone_afterwards(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []
    whole: Callable[[], object] = beside.scratch_folder

    def watched() -> object:
        folder = whole()
        folders.append(folder.path)  # pyright: ignore[reportAttributeAccessIssue]
        return folder

    monkeypatch.setattr(beside, "scratch_folder", watched)
    with running([Machine().player("a", 1e-5, 1.0)], pool, 1.0):
        assert folders[0].exists()
    assert not folders[0].exists()
