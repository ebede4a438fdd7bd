"""A session before, while and after its placement and its database are open."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.session import opened
from tilewright.store import open_store
from tilewright.store.base import Store


def test_what_nobody_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "usual.db"))
    session = tw.open()
    shown = f"target llvm, threads all physical cores, database {tmp_path}/usual.db, seed 0"
    assert repr(session) == f"<tilewright session: {shown}>"
    assert session.verify and session.meter is None
    assert not (tmp_path / "usual.db").exists(), "nothing is opened before it is used"


def test_what_is_said_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "usual.db"))
    session = tw.open(db=tmp_path / "own.db", threads=1, seed=3, tracker="here:9190")
    shown = f"threads 1, database {tmp_path}/own.db, seed 3, tracker here:9190"
    assert repr(session) == f"<tilewright session: target llvm, {shown}>"
    with pytest.raises(UsageError, match="events"):
        tw.open(events="loud")  # type: ignore[arg-type]


def test_the_threads_are_known_with_the_placement(tmp_path: Path) -> None:
    session = tw.open(db=tmp_path / "a.db", target="simulated")
    assert "all physical cores" in repr(session)
    threads = session.placement.resources.threads
    assert f"threads {threads}," in repr(session)
    assert session.placement is session.placement, "looked for once"
    more = tw.open(db=tmp_path / "a.db", target="simulated", threads=threads + 1)
    assert more.placement.resources.threads == threads + 1


def test_notes_of_a_placement_reach_the_session(tmp_path: Path) -> None:
    told: list[Event] = []
    session = tw.open(db=tmp_path / "a.db", target="simulated", events=told.append)
    assert session.placement.device.access == "simulated"
    assert any(isinstance(event, Note) for event in told)


def test_one_database_until_it_is_closed(tmp_path: Path) -> None:
    with tw.open(db=tmp_path / "a.db") as session:
        store = session.store
        assert session.store is store and session.records is store and not store.readonly
        session.close()
        session.close()
        assert session.records is not store
        again = session.records
        assert session.records is again


def test_what_was_read_only_is_opened_anew_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()

    def locked(location: str) -> Store:
        return open_store(location, readonly=True)

    monkeypatch.setattr(opened, "open_for_reading", locked)
    with tw.open(db=path) as session:
        read = session.records
        assert read.readonly and session.records is read
        assert session.store is not read and not session.store.readonly
        assert session.records is session.store
