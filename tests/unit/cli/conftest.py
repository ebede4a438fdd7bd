from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.fakes.session import FakeSession
from tilewright.cli import work
from tilewright.cli.flags import AnswerFlags, TargetFlag
from tilewright.cli.main import main
from tilewright.core.events import EventSink


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSession:
    """The session every verb gets, in a working folder of its own."""
    fake = FakeSession()

    def opened(flags: AnswerFlags, target: TargetFlag, events: EventSink) -> FakeSession:
        fake.calls.append({**flags.opening, "target": target.target})
        fake.sink = events
        return fake

    monkeypatch.setattr(work, "open_session", opened)
    monkeypatch.chdir(tmp_path)
    return fake


@pytest.fixture
def tilewright(session: FakeSession, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run one command line."""

    def run(*tokens: str) -> Ran:
        code = main(tokens)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
