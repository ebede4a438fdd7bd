"""The way of one `optimize` through the rooms: down, and back up in few named places."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import tilewright
from tilewright.session import Session

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(tilewright.__file__).parent
PAGE = ROOT / "docs/architecture.md"
MOST = 3


def levels() -> dict[str, int]:
    """The rooms by height, as import-linter holds them; siblings have one height."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return {
        room.strip(): height for height, row in enumerate(rows[::-1]) for room in row.split("|")
    }


class Trace:
    """Rooms in the order in which they are first entered, and calls into higher ones."""

    def __init__(self) -> None:
        self.rooms: list[str] = []
        self.upward: dict[tuple[str, str], None] = {}
        self._levels = levels()
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        room = self._room(frame)
        if room is None:
            return
        if room not in self.rooms:
            self.rooms.append(room)
        caller = frame.f_back
        while caller is not None and self._room(caller) is None:
            caller = caller.f_back
        if caller is not None and self._levels[room] > self._levels[str(self._room(caller))]:
            self.upward[_name(caller), _name(frame)] = None

    def _room(self, frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        if file not in self._names:
            path = Path(file)
            inside = path.is_relative_to(PACKAGE) and len(path.relative_to(PACKAGE).parts) > 1
            room = path.relative_to(PACKAGE).parts[0] if inside else ""
            self._names[file] = room if room in self._levels else None
        return self._names[file]


def _name(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename).relative_to(PACKAGE)
    return f"{path.with_suffix('').as_posix()}:{frame.f_code.co_qualname}"


@contextmanager
def traced() -> Iterator[Trace]:
    found = Trace()
    sys.setprofile(found)
    try:
        yield found
    finally:
        sys.setprofile(None)


def test_one_optimize_goes_down_and_comes_back(tmp_path: Path) -> None:
    with (
        Session(
            db=tmp_path / "a.db", target="simulated", tracker=None, threads=1, seed=0
        ) as session,
        traced() as found,
    ):
        session.optimize("zoo:mlp", budget=40, out=tmp_path / "out")
    print(" → ".join(found.rooms))  # noqa: T201 - for who wants to see them
    for caller, callee in found.upward:
        print(f"up: {caller} calls {callee}")  # noqa: T201
    assert found.rooms[0] == "session" and {"search", "deploy", "measure"} <= {*found.rooms}
    callees = {callee.partition(":")[0] for _, callee in found.upward}
    assert len(callees) <= MOST
    page = PAGE.read_text(encoding="utf-8")
    assert not [name for name in callees if f"`{name}.py`" not in page], "the page names them"
