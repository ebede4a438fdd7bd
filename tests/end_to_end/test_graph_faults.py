"""`tune --level graph` under Ctrl-C and kill -9, beside itself, and without a place to write."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.command_line import rows, run, small_model, start, succeed
from helpers.commands.started_commands import Started

BUDGET = 12
WORDS = (
    "tune", "net.onnx", "--level", "graph", "--budget", BUDGET, "--save-problem", "net.json",
)  # fmt: skip
SHIPPED = {"model.so", "weights.params", "manifest.json", "report.html", "layouts.onnx"}


def model_in(folder: Path) -> Path:
    small_model(folder / "net.onnx", filters=(16,), extent=12)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_in(tmp_path)


def wait_for(process: Started | subprocess.Popen[str], words: str) -> None:
    """Until the progress on stderr has these words; fails if the process ends before."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"{words!r} was never told")


def check_complete(folder: Path, again: dict[str, Any], kept: int) -> None:
    """The command that was repeated measured what was left, and shipped."""
    assert again["measurements"] + again["failures"] == BUDGET - kept
    assert rows(folder) == BUDGET
    assert {path.name for path in (folder / "out").iterdir()} == SHIPPED
    assert (folder / "net.json").exists()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A folder in which Ctrl-C came while layouts were searched."""
    folder = model_in(tmp_path_factory.mktemp("interrupted"))
    process = start(folder, *WORDS, "--out", "out", "--format", "json")
    wait_for(process, "in other layouts")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out == "" and "Traceback" not in err
    assert "tilewright tune net.onnx --level graph" in err
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A folder in which the command died while networks were raced."""
    folder = model_in(tmp_path_factory.mktemp("killed"))
    process = start(folder, *WORDS, "--out", "out")
    wait_for(process, "compare:")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return folder


@pytest.mark.on_request
def test_interrupted_it_goes_on(interrupted: Path) -> None:
    assert not any(interrupted.glob("out/*"))
    kept = rows(interrupted)
    assert kept > 0
    check_complete(interrupted, succeed(interrupted, *WORDS, "--out", "out"), kept)


def test_killed_in_the_race_it_goes_on(killed: Path) -> None:
    assert not (killed / "out" / "manifest.json").exists()
    kept = rows(killed)
    assert kept == BUDGET
    check_complete(killed, succeed(killed, *WORDS, "--out", "out"), kept)


@pytest.mark.parametrize("place", ["/dev/full", "net.onnx/problem.json", "."])
def test_no_place_for_the_problem(folder: Path, place: str) -> None:
    before = (folder / "net.onnx").read_bytes()
    done = run(
        folder, "tune", "net.onnx", "--level", "graph", "--budget", "0", "--save-problem", place
    )
    assert done.code == 4, done.err
    assert place in done.err and "Traceback" not in done.err
    assert done.out == ""
    assert (folder / "net.onnx").read_bytes() == before
