"""What every store of measurements must keep, as checks that another package can run on its own.

    from tilewright.testing.stores import StoreConformance

    class TestMyStore(StoreConformance):
        opener = staticmethod(open_mine)

        def location(self, folder):
            return f"{folder}/mine"

A check takes a function that opens the store at one new place, for reading only or not. `keeps`
says that what was written is there when the place is opened again.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from msgspec import structs

from tilewright.core.errors import StoreError
from tilewright.core.records import (
    Outcome,
    Run,
)
from tilewright.graph.workload import Workload
from tilewright.store.base import Archive, Store
from tilewright.store.registry import StoreOpener
from tilewright.testing.records import (
    ELSEWHERE,
    HERE,
    OTHER,
    WORKLOAD,
    candidate,
    failure,
    measurement,
    network,
    run,
    shipped,
)

Opening = Callable[[bool], Store]
"""Opens the store at one place; True for reading only."""

_DAY_S = 86_400.0
_WRITERS, _EACH = 4, 12


def check_outcomes(opening: Opening) -> None:
    """Outcomes come back as they were, oldest first, of one time measurements first; the same one
    twice is there twice, and nothing of other workloads."""
    with opening(False) as store:
        assert store.outcomes(WORKLOAD.key, HERE.key) == [], "a new store knows something"
        store.add([failure(2), measurement(3), measurement(1)])
        store.add([measurement(2), measurement(1), replace(failure(0), workload_key=OTHER.key)])
        store.add([])
        wanted: list[Outcome] = [
            *(measurement(1), measurement(1), measurement(2), failure(2), measurement(3))
        ]
        found = store.outcomes(WORKLOAD.key, HERE.key)
        assert found == wanted, f"outcomes come back as {found}"


def check_placements_never_mix(opening: Opening) -> None:
    """What was measured on another class of devices or with other resources is not here."""
    with opening(False) as store:
        for number, place in enumerate((HERE, *ELSEWHERE)):
            store.add([measurement(number, place), failure(number, place)])
            store.ship(shipped(number, place))
            store.begin_run(run(number, place))
            store.add_network(network(number, place))
            store.add_peak(place.key, "flop_per_s", 1e9 + number)
        for number, place in enumerate((HERE, *ELSEWHERE)):
            own = [measurement(number, place), failure(number, place)]
            assert store.outcomes(WORKLOAD.key, place.key) == own, "outcomes of two places mix"
            assert store.stored_measurements(placement=place.key) == own[:1]
            assert store.shipped("network", place.key) == shipped(number, place)
            assert [each.seed for each in store.runs("network", place.key)] == [number]
            assert store.networks("network", place.key) == [network(number, place)]
            assert store.peak(place.key, "flop_per_s") == 1e9 + number, "peaks of two places mix"


def check_filters(opening: Opening) -> None:
    """Measurements are found by workload, place, implementation and run, oldest first; failures
    are none."""
    with opening(False) as store:
        strange = structs.replace(candidate(), implementation="winograd")
        made = [
            measurement(5),
            measurement(4, run_id=7),
            replace(measurement(3), workload_key=OTHER.key),
            replace(measurement(2), candidate=strange),
        ]
        store.add([*made, failure(1)])
        found = store.stored_measurements()
        assert [each.created_at for each in found] == [2, 3, 4, 5], "not all, or not oldest first"
        assert store.stored_measurements(run_id=7) == [made[1]]
        assert store.stored_measurements(workload_key=OTHER.key) == [made[2]]
        assert store.stored_measurements(implementation="winograd") == [made[3]]
        both = store.stored_measurements(workload_key=WORKLOAD.key, implementation="winograd")
        assert both == [made[3]] and store.stored_measurements(implementation="none") == []


def check_all_or_none(opening: Opening) -> None:
    """Where adding fails half-way, nothing of it is kept."""

    def broken() -> Iterator[Outcome]:
        yield measurement(1)
        raise RuntimeError("half-way")

    with opening(False) as store:
        try:
            store.add(broken())
        except RuntimeError:
            assert store.stored_measurements() == [], "half of what failed was kept"
        else:
            raise AssertionError("an error in what is added is swallowed")


def check_workloads(opening: Opening) -> None:
    """Workloads are rebuilt from their keys; adding one again changes nothing."""
    with opening(False) as store:
        assert store.workload(WORKLOAD.key) is None
        store.add_workload(WORKLOAD)
        store.add_workloads([OTHER, WORKLOAD])
        store.add_workloads([])
        assert store.workload(WORKLOAD.key) == WORKLOAD
        keys: Callable[[Workload], str] = lambda each: each.key  # noqa: E731
        assert sorted(map(keys, store.workloads())) == sorted((WORKLOAD.key, OTHER.key))


def check_runs(opening: Opening) -> None:
    """Runs get ids of their own, are updated, come back oldest first, and say what their
    measurements were about."""
    with opening(False) as store:
        late, early = store.begin_run(run(2)), store.begin_run(run(1))
        assert late.id is not None and early.id is not None, "a run has no id"
        assert late.id != early.id, "two runs have one id"
        unknown = replace(late, id=late.id + early.id + 1000)
        done = replace(late, state="done", spent_s=1.5, measurements=3)
        store.update_run(done)
        assert store.runs("network", HERE.key) == [early, done]
        assert store.runs("another", HERE.key) == []
        store.add([measurement(1, run_id=late.id), measurement(2)])
        assert store.models_of_tasks(HERE.key) == {WORKLOAD.key: {"zoo:one"}}
        store.add([measurement(3, run_id=late.id, model="zoo:two"), measurement(4, model="zoo:x")])
        assert store.models_of_tasks(HERE.key) == {WORKLOAD.key: {"zoo:one", "zoo:two", "zoo:x"}}
        assert store.models_of_tasks(ELSEWHERE[0].key) == {}
        _refused(lambda: store.update_run(unknown), "a run")


def check_shipped(opening: Opening) -> None:
    """Of what shipped for a network the newest is told, and all of it where all is asked for."""
    with opening(False) as store:
        assert store.shipped("network", HERE.key) is None
        for number in (1, 2):
            store.ship(shipped(number))
        store.ship(shipped(3, network="another"))
        assert store.shipped("network", HERE.key) == shipped(2), "the newest does not win"
        every = [shipped(1), shipped(2), shipped(3, network="another")]
        assert store.all_shipped(HERE.key) == every
        assert store.all_shipped(ELSEWHERE[0].key) == []


def check_devices_and_peaks(opening: Opening) -> None:
    """A device is there once, as it was told last; of a peak the newest value counts."""
    with opening(False) as store:
        assert store.peak(HERE.key, "flop_per_s") is None and store.placements() == []
        store.add_device(HERE.device)
        newer = replace(HERE.device, target=replace(HERE.device.target, cores=99))
        store.add_device(newer)
        store.add_device(ELSEWHERE[0].device)
        assert store.devices() == [ELSEWHERE[0].device, newer], "devices come back otherwise"
        store.add_peak(HERE.key, "flop_per_s", 1.0)
        store.add_peak(HERE.key, "flop_per_s", 2.0)
        assert store.peak(HERE.key, "flop_per_s") == 2.0, "the newest peak does not count"
        assert store.peak(HERE.key, "bytes_per_s") is None
        (place,) = store.placements()
        assert (place.device, place.resources) == (newer, HERE.resources)


def check_days(opening: Opening) -> None:
    """The first and the last day of what was measured at a place."""
    with opening(False) as store:
        assert store.measured_days(HERE.key) is None
        store.add([replace(measurement(1), created_at=each * _DAY_S) for each in (9.5, 2.5, 4.5)])
        first, last = (datetime.date(1970, 1, day).isoformat() for day in (3, 10))
        assert store.measured_days(HERE.key) == (first, last)
        assert store.measured_days(ELSEWHERE[0].key) is None


def check_threads(opening: Opening) -> None:
    """Several threads write and read at a time, and everything is there in the end."""
    with opening(False) as store:

        def write(writer: int) -> None:
            for number in range(_EACH):
                store.add([measurement(writer * _EACH + number)])
                assert store.stored_measurements(), "what this thread wrote is not there"

        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(write, range(_WRITERS)))
        found = {each.created_at for each in store.stored_measurements()}
        assert len(found) == _WRITERS * _EACH, f"{len(found)} of {_WRITERS * _EACH} are there"


def check_closing(opening: Opening) -> None:
    """Closing twice is harmless, and a `with` block closes."""
    store = opening(False)
    store.add([measurement()])
    store.close()
    store.close()


def check_path(opening: Opening) -> None:
    """Files that belong to it can lie beside its path, and another store's elsewhere."""
    with opening(False) as store:
        assert store.path.name, "its path has no name"
        beside = store.path.with_suffix(".models")
        beside.parent.mkdir(parents=True, exist_ok=True)
        assert beside != store.path


def check_kept(opening: Opening, keeps: bool = True) -> None:
    """What was written is there for whoever opens the place next, also before it was closed; or,
    where nothing is kept, none of it."""
    store = opening(False)
    try:
        begun = store.begin_run(run())
        store.add([measurement(1, run_id=begun.id), failure(2)])
        store.add_workload(WORKLOAD)
        store.ship(shipped())
        store.add_device(HERE.device)
        store.add_peak(HERE.key, "flop_per_s", 3.0)
        with opening(False) as beside:
            _same(beside, begun, keeps)
    finally:
        store.close()
    with opening(False) as again:
        _same(again, begun, keeps)


def _same(store: Store, begun: Run, keeps: bool) -> None:
    if not keeps:
        assert not store.stored_measurements() and not store.runs("network", HERE.key)
        return
    known = store.outcomes(WORKLOAD.key, HERE.key)
    assert known == [measurement(1, run_id=begun.id), failure(2)], "outcomes were lost"
    assert store.runs("network", HERE.key) == [begun], "a run was lost"
    assert store.workload(WORKLOAD.key) == WORKLOAD, "a workload was lost"
    assert store.shipped("network", HERE.key) == shipped(), "what shipped was lost"
    assert store.peak(HERE.key, "flop_per_s") == 3.0, "a peak was lost"
    assert [place.device for place in store.placements()] == [HERE.device]


def check_reading_only(opening: Opening, keeps: bool = True) -> None:
    """Opened for reading only, it is read, and refuses every write with a StoreError."""
    with opening(False) as store:
        assert not store.readonly, "opened for writing, it says that it is for reading only"
        begun = store.begin_run(run())
        store.add([measurement()])
    with opening(True) as store:
        assert store.readonly, "opened for reading only, it does not say so"
        assert len(store.stored_measurements()) == (1 if keeps else 0)
        writes: list[Callable[[], object]] = [
            lambda: store.add([measurement(1)]),
            lambda: store.add_workload(OTHER),
            lambda: store.begin_run(run(1)),
            lambda: store.update_run(replace(begun, state="done")),
            lambda: store.ship(shipped()),
            lambda: store.add_network(network()),
            lambda: store.add_device(HERE.device),
            lambda: store.add_peak(HERE.key, "flop_per_s", 1.0),
        ]
        for number, write in enumerate(writes):
            _refused(write, f"write number {number}")
        assert len(store.stored_measurements()) == (1 if keeps else 0), "a refused write was kept"


def check_archive(opening: Opening) -> None:
    """Where it has what `tilewright db` needs: counts are right, and what it exports another store
    takes in."""
    with opening(False) as store:
        if not isinstance(store, Archive):
            return
        store.add([measurement(1), measurement(2), failure(3)])
        store.add_workload(WORKLOAD)
        counts = store.info()
        assert (counts.measurements, counts.failures, counts.tasks) == (2, 1, 1)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "all.jsonl"
            assert store.export(file) >= 3, "records are missing in what it exports"
            again = store.import_file(file)
            assert again.imported == 0, "it takes in again what it knows"
        assert store.gc(failures_older_than_s=0.0).failures == 1


def _refused(write: Callable[[], object], what: str) -> None:
    try:
        write()
    except StoreError as error:
        assert error.message, f"it refuses {what} without a word"
        return
    raise AssertionError(f"{what} should be refused with a StoreError, and is not")


CHECKS: tuple[Callable[[Opening], None], ...] = (
    check_outcomes,
    check_placements_never_mix,
    check_filters,
    check_all_or_none,
    check_workloads,
    check_runs,
    check_shipped,
    check_devices_and_peaks,
    check_days,
    check_threads,
    check_closing,
    check_path,
    check_archive,
)
"""Beside `check_kept` and `check_reading_only`, which are told whether anything is kept."""


@contextmanager
def opening_at(
    opener: StoreOpener, location: Callable[[Path], str] = lambda folder: str(folder / "store")
) -> Generator[Opening]:
    """A function that opens the store at one place in a new folder."""
    with TemporaryDirectory() as folder:
        place = location(Path(folder))
        yield lambda readonly: opener(place, readonly)


def check_store(
    opener: StoreOpener,
    location: Callable[[Path], str] = lambda folder: str(folder / "store"),
    keeps: bool = True,
) -> None:
    """All checks one after the other; raises AssertionError with what was not kept."""
    for check in CHECKS:
        with opening_at(opener, location) as opening:
            check(opening)
    for check in (check_kept, check_reading_only):
        with opening_at(opener, location) as opening:
            check(opening, keeps)


class StoreConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `opener`, `keeps` where
    nothing is kept, and `location` where a place is no path in a folder."""

    opener: StoreOpener
    keeps: ClassVar[bool] = True

    def location(self, folder: Path) -> str:
        """What the opener is given for a new store in a folder."""
        return str(folder / "store")

    def _check(self, check: Callable[[Opening], None]) -> None:
        with opening_at(self.opener, self.location) as opening:
            check(opening)

    def test_outcomes(self) -> None:
        self._check(check_outcomes)

    def test_placements_never_mix(self) -> None:
        self._check(check_placements_never_mix)

    def test_filters(self) -> None:
        self._check(check_filters)

    def test_all_or_none(self) -> None:
        self._check(check_all_or_none)

    def test_workloads(self) -> None:
        self._check(check_workloads)

    def test_runs(self) -> None:
        self._check(check_runs)

    def test_shipped(self) -> None:
        self._check(check_shipped)

    def test_devices_and_peaks(self) -> None:
        self._check(check_devices_and_peaks)

    def test_days(self) -> None:
        self._check(check_days)

    def test_threads(self) -> None:
        self._check(check_threads)

    def test_closing(self) -> None:
        self._check(check_closing)

    def test_path(self) -> None:
        self._check(check_path)

    def test_archive(self) -> None:
        self._check(check_archive)

    def test_kept(self) -> None:
        self._check(lambda opening: check_kept(opening, self.keeps))

    def test_reading_only(self) -> None:
        self._check(lambda opening: check_reading_only(opening, self.keeps))
