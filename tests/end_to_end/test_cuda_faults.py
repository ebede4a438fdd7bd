"""Faults while kernels for a GPU that is not here are compiled: Ctrl-C, a second command, a place
that is full."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

GPU = ("--target", "cuda -model=H100", "--db", "memory:")
SWEEP = ("study", "padding", "op:conv2d[c=4,h=8,k=3,pad=1,out=4]", *GPU)
FULL = Path("/dev/full")
COMMAND = (sys.executable, "-m", "tilewright")


def test_an_interrupted_sweep_ends_with_130_and_leaves_no_process(tmp_path: Path) -> None:
    values = ",".join(map(str, range(60)))
    with subprocess.Popen(
        [*COMMAND, *SWEEP, "--values", values], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("compile: conv2d")
        children = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert "interrupted" in said and "tilewright study padding" in said and "Traceback" not in said
    assert not psutil.wait_procs(children, timeout=5)[1]


@pytest.mark.on_request
def test_two_at_once_say_the_same(tmp_path: Path) -> None:
    asked = [*COMMAND, *SWEEP, "--values", "0,1", "--format", "csv"]
    both = [
        subprocess.Popen(asked, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [one.communicate()[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert answers[0] == answers[1] and answers[0].startswith("value,")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_place_that_is_full_is_named(tmp_path: Path) -> None:
    asked = [*COMMAND, "show", "op:relu[shape=8x8]", "--cuda", *GPU[:2]]
    with FULL.open("w") as full:
        done = subprocess.run(
            asked, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4 and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
