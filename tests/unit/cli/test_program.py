"""Commands that crash or hang end with a message and a documented exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tilewright.cli import main as commands
from tilewright.cli import program

TOKENS = ["run", "plan", "--input", "x.npy"]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time\n{code}"]


@contextmanager
def asked_when_ready(ready: Path, number: signal.Signals) -> Generator[str]:
    """Send this process a signal once the code that is given has run in another one, which then
    goes on for ten minutes."""
    os.mkfifo(ready)

    def ask() -> None:
        ready.open().close()
        os.kill(os.getpid(), number)

    asking = threading.Thread(target=ask)
    asking.start()
    yield f"open({str(ready)!r}, 'w').close()\ntime.sleep(600)"
    asking.join()


@pytest.mark.parametrize("code", [0, 2, 70])
def test_exit_codes_are_handed_on(code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert program.watched(python(f"print('x'); sys.exit({code})"), TOKENS) == code
    assert tuple(capfd.readouterr()) == ("x\n", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGFPE])
def test_a_crash_is_told(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    crash = python(f"os.kill(os.getpid(), {number.value})")
    assert program.watched(crash, TOKENS) == 1
    out, err = capfd.readouterr()
    assert out == "" and f"the process that ran the network ended with signal {number.name}" in err
    assert "--mode sequential" in err


def test_one_that_hangs_is_killed_after_it_was_asked_to_stop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In native code no handler of Python's ever runs."""
    with asked_when_ready(tmp_path / "ready", signal.SIGINT) as says_ready:
        hangs = python(f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{says_ready}")
        assert program.watched(hangs, TOKENS, grace_s=0.05) == 130
    assert "interrupted" in capfd.readouterr().err


def test_one_that_stops_when_it_is_asked_to_tells_so_itself(tmp_path: Path) -> None:
    with asked_when_ready(tmp_path / "ready", signal.SIGTERM) as says_ready:
        stops = python(f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\n{says_ready}")
        assert program.watched(stops, TOKENS, grace_s=600.0) == 130


class Clock(threading.Timer):
    """One that is over at once where it is for `over_s` seconds, and otherwise never."""

    over_s = 0.0

    def __init__(self, interval: float, function: Callable[[], None]) -> None:
        super().__init__(0.0 if interval == self.over_s else 1e6, function)


@pytest.mark.parametrize("over_s", [90.0, 0.0])
def test_one_that_takes_longer_than_the_limit_is_killed(
    over_s: float, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In native code no handler of Python's ever runs."""
    monkeypatch.setattr(Clock, "over_s", over_s)
    hangs = python("time.sleep(600)" if over_s else "sys.exit(0)")
    code = program.watched(hangs, TOKENS, limit_s=90.0, clock=Clock)
    err = capfd.readouterr().err
    if not over_s:
        assert code == 0 and not err
        return
    assert code == 1 and "nothing was computed within --limit, 90 s" in err
    assert "--mode sequential" in err


def test_one_that_was_asked_to_stop_is_told_as_interrupted_whatever_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Clock, "over_s", 5.0)
    with asked_when_ready(tmp_path / "ready", signal.SIGINT) as says_ready:
        hangs = python(f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{says_ready}")
        assert program.watched(hangs, TOKENS, 5.0, limit_s=90.0, clock=Clock) == 130
    err = capfd.readouterr().err
    assert "interrupted" in err and "--limit" not in err


@pytest.mark.parametrize(
    ("said", "limit_s"),
    [
        ([], None),
        (["--limit", "2m"], 120.0),
        (["--limit=1.5s"], 1.5),
        (["--limit"], None),
        (["--limit", "soon"], None),
        (["--limit=0s"], None),
    ],
)
def test_the_limit_is_read_where_nothing_else_is(said: list[str], limit_s: float | None) -> None:
    assert program.limit_of([*TOKENS, *said]) == limit_s
    assert program.limit_of(["run", *said, "plan"]) == limit_s


@pytest.mark.parametrize("said", ["soon", "0s", "-3s"])
def test_what_is_no_limit_is_refused(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([*TOKENS, f"--limit={said}"]) == 2
    assert f"--limit '{said}' is no time" in capsys.readouterr().err


def test_run_is_watched_and_other_verbs_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[list[str]] = []
    monkeypatch.setattr(program, "watched", lambda _, tokens, limit_s: watched.append(tokens) or 7)
    monkeypatch.setattr(commands, "main", lambda: 8)
    monkeypatch.setattr(sys, "argv", ["tilewright", *TOKENS])
    assert program.main() == 7 and watched == [TOKENS]
    monkeypatch.setattr(sys, "argv", ["tilewright", "plan", "run"])
    assert program.main() == 8 and len(watched) == 1


def test_the_watched_process_is_the_same_command(tmp_path: Path) -> None:
    start = [sys.executable, "-m", "tilewright", "run", str(tmp_path / "none"), "--input", "x.npy"]
    done = subprocess.run(start, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 4 and "x.npy" in done.stderr
