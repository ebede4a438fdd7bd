"""The suite of stores: ours and a text file pass it, and it finds those that break a promise."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.plugins import journal_store
from tilewright.core.codec import to_builtins
from tilewright.core.errors import StoreError
from tilewright.core.records import PlacementKey
from tilewright.store import open_store
from tilewright.store.registry import STORES
from tilewright.testing import stores as suite
from tilewright.testing.records import HERE, measurement
from tilewright.testing.stores import StoreConformance


class TestFiles(StoreConformance):
    opener = staticmethod(STORES.named("sqlite"))

    def location(self, folder: Path) -> str:
        return str(folder / "a.db")


class TestMemory(StoreConformance):
    opener = staticmethod(STORES.named("memory"))
    keeps = False

    def location(self, folder: Path) -> str:
        return ""


class TestJournal(StoreConformance):
    opener = staticmethod(journal_store.opened)


class Journal(journal_store.Journal):
    """What the bad ones below are made from."""


class Backwards(Journal):
    def outcomes(self, workload_key: str, placement: PlacementKey):
        return super().outcomes(workload_key, placement)[::-1]


class Mixing(Journal):
    def outcomes(self, workload_key: str, placement: PlacementKey):
        placements = {HERE.key, placement, *(place.key for place in suite.ELSEWHERE)}
        found = [super(Mixing, self).outcomes(workload_key, place) for place in placements]
        return sorted((o for some in found for o in some), key=lambda o: o.created_at)


class Deaf(Journal):
    """Knows no filter."""

    def stored_measurements(self, **_filters: object):
        return super().stored_measurements()


class Eager(Journal):
    """Keeps what came before an error."""

    def add(self, outcomes) -> None:
        for outcome in outcomes:
            super().add([outcome])


class Illiterate(Journal):
    def workloads(self):
        return []


class Nameless(Journal):
    """All runs have one id."""

    def begin_run(self, run):
        return super().begin_run(run) and replace(run, id=1)


class Nostalgic(Journal):
    def shipped(self, network_key: str, placement: PlacementKey):
        found = [s for s in self.all_shipped(placement) if s.network_key == network_key]
        return found[0] if found else None


class Stubborn(Journal):
    def peak(self, placement: PlacementKey, name: str):
        wanted = [placement.device_class, str(placement.resources), name]
        return next((p[3] for p in self._read("peak") if p[:3] == wanted), None)


class Timeless(Journal):
    def measured_days(self, placement: PlacementKey):
        return None


class Racy(Journal):
    """Reads all and writes all, and so loses what others wrote meanwhile."""

    def _write(self, kind: str, *records: object) -> None:
        before = self.path.read_text() if self.path.exists() else ""
        time.sleep(0.002)
        lines = [json.dumps([kind, to_builtins(record)]) + "\n" for record in records]
        self.path.write_text(before + "".join(lines))


class OnceClosed(Journal):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise StoreError("closed already")
        self.closed = True


class Everywhere(Journal):
    def __init__(self, path: Path, readonly: bool) -> None:
        super().__init__(path, readonly)
        self.path = Path("/")


class Late(Journal):
    """Writes when it is closed."""

    def __init__(self, path: Path, readonly: bool) -> None:
        super().__init__(path, readonly)
        self._waiting: list[tuple[str, tuple[object, ...]]] = []

    def _write(self, kind: str, *records: object) -> None:
        self._waiting.append((kind, records))

    def close(self) -> None:
        for kind, records in self._waiting:
            super()._write(kind, *records)
        self._waiting = []


class Writable(Journal):
    """Opened for reading only, it writes all the same."""

    def _write(self, kind: str, *records: object) -> None:
        self.readonly, before = False, self.readonly
        super()._write(kind, *records)
        self.readonly = before


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (suite.check_outcomes, Backwards),
        (suite.check_placements_never_mix, Mixing),
        (suite.check_filters, Deaf),
        (suite.check_all_or_none, Eager),
        (suite.check_workloads, Illiterate),
        (suite.check_runs, Nameless),
        (suite.check_shipped, Nostalgic),
        (suite.check_devices_and_peaks, Stubborn),
        (suite.check_days, Timeless),
        (suite.check_threads, Racy),
        (suite.check_closing, OnceClosed),
        (suite.check_path, Everywhere),
        (suite.check_kept, Late),
        (suite.check_reading_only, Writable),
    ],
)
def test_stores_that_break_a_promise_are_found(check, bad) -> None:
    with suite.opening_at(journal_store.opened) as opening:
        check(opening)
    with (
        suite.opening_at(lambda place, readonly: bad(Path(place), readonly)) as opening,
        pytest.raises((AssertionError, StoreError, ValueError)),
    ):
        check(opening)


def test_the_class_runs_every_check() -> None:
    methods = [name for name in dir(StoreConformance) if name.startswith("test_")]
    checks = (*suite.CHECKS, suite.check_kept, suite.check_reading_only)
    assert sorted(methods) == sorted(c.__name__.replace("check_", "test_") for c in checks)


def test_a_whole_store_is_checked_at_once() -> None:
    suite.check_store(journal_store.opened)
    with pytest.raises(AssertionError, match="lost"):
        suite.check_store(lambda _place, readonly: open_store("memory:", readonly=readonly))


def test_memory_is_of_one_store_alone_and_survives_a_fork() -> None:
    with open_store("memory:") as store, open_store("memory:") as other:
        store.add([measurement()])
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert len(store.stored_measurements()) == 1 and not other.stored_measurements()
        beside = store.path.parent
        assert beside.is_dir()
    assert not beside.exists()


def test_memory_takes_no_name() -> None:
    with pytest.raises(StoreError, match="takes nothing after its colon"):
        open_store("memory:mine")
