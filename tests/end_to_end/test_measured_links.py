"""Plans with devices behind a tracker, whose links are measured: by commands, with servers that
live and servers that die."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.processes.rpc_processes import Farm
from tilewright.cli.main import main
from tilewright.core.records import Placement
from tilewright.measure import links
from tilewright.measure.boards import Board
from tilewright.measure.links import Copies

TOGETHER = ("--devices", "llvm", "--devices", "rpc:a", "--planner", "heft", "--threads", "1")
SLOW: Copies = [(4, 2e-3, 1e-3), (1004, 3e-3, 3e-3)]
"""By a clock of the test: 2 ms and 1 MB/s there, 1 ms and 0.5 MB/s back."""
Command = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def one() -> Iterator[Farm]:
    farm = Farm()
    try:
        farm.add("a", threads=1)
        yield farm
    finally:
        farm.stop()


@pytest.fixture
def plan(one: Farm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """`tilewright plan` with the same database: the exit code, the answer, and what was told."""

    def run(*words: str) -> tuple[int, Any, str]:
        kept = ("--db", str(tmp_path / "rows.db"), "--format", "json", "--tracker", one.address)
        code = main(("plan", "zoo:mlp", *TOGETHER, *words, *kept))
        told = capsys.readouterr()
        return code, json.loads(told.out)["data"] if code == 0 else None, told.err

    return run


def test_a_link_is_measured_kept_and_counted_with(
    plan: Command, one: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found, _ = plan()
    (link,) = found["links"]
    assert code == 0 and (link["device"], link["link_is"]) == ("rpc:a", "measured")
    assert link["of"] == f"rpc:a/{one.address}" and link["machine"] and link["day"]
    for way in ("there", "back"):
        assert link[way]["latency_s"] > 0 and link[way]["bytes_per_s"] > 0
    monkeypatch.setattr(links, "copies_behind_tracker", lambda _: SLOW)
    code, found, _ = plan("--link", "measured")
    (link,) = found["links"]
    assert link["there"]["latency_s"] == 2e-3 and link["back"]["latency_s"] == 1e-3
    assert link["there"]["bytes_per_s"] == pytest.approx(1e6)
    assert link["back"]["bytes_per_s"] == pytest.approx(5e5)

    def never(_placement: Placement) -> Copies:
        raise AssertionError("a link that was said is measured")

    monkeypatch.setattr(links, "copies_behind_tracker", never)
    _, found, _ = plan("--link", "rpc:a=1ms,1MB")
    (link,) = found["links"]
    assert (link["link_is"], link["of"], link["there"]) == (None, "--link", link["back"])


def test_a_server_that_dies_meanwhile(
    plan: Command, one: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request for copies finds no server; afterwards the plan is made without a link, or with
    the one that is known, or not at all."""
    usual = Board.request

    def dying(board: Board, message: tuple[Any, ...], limit_s: float) -> Any:
        if message[0] == "copies":
            one.servers[-1].kill()
        return usual(board, message, limit_s)

    with monkeypatch.context() as once:
        once.setattr(Board, "request", dying)
        code, found, told = plan()
        assert (code, found["links"], found["transfers"]) == (0, [], [])
        assert "cannot be measured" in told and "No tensor goes there from another device" in told
        one.add("a", threads=1)
        code, _, told = plan("--link", "measured")
        assert code == 3 and "the link to rpc:a/" in told and "cannot be measured" in told
        one.add("a", threads=1)
        once.setattr(links, "copies_behind_tracker", lambda _: SLOW)
        assert plan()[0] == 0
        once.undo()
        once.setattr(Board, "request", dying)
        code, found, told = plan()
        assert (code, found["links"][0]["there"]["latency_s"]) == (0, 2e-3)
        assert f"counts with what was measured on {found['links'][0]['day']}" in told


def test_measured_is_for_devices_behind_a_tracker(
    plan: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("--link", "measured", "--link", "rpc:a=1ms,1MB")[0] == 2
    assert main(("plan", "zoo:mlp", "--link", "measured", "--db", "memory:")) == 2
    assert "--devices rpc:KEY --tracker HOST:PORT" in capsys.readouterr().err
