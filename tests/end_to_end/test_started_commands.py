"""Commands that tests look at while they run."""

from __future__ import annotations

from pathlib import Path

from helpers.commands.command_line import start


def test_one_that_says_more_than_a_pipe_holds_ends(tmp_path: Path) -> None:
    process = start(tmp_path, "show", f"op:{'x' * 100_000}")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "") and len(err) > 1 << 16
