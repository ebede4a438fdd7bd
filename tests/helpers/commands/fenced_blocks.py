"""Code blocks of Markdown files, and running them as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.commands.command_line import know_machine
from helpers.commands.warm_commands import warm, warm_path

_BLOCK = re.compile(
    r"(?:^<!-- example: (?P<name>.+?) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`name` comes from a comment `<!-- example: NAME -->` on the line above."""

    language: str
    code: str
    name: str | None


def blocks(path: Path) -> list[Block]:
    """All fenced blocks, in order."""
    return [
        Block(language=found["language"], code=found["code"], name=found["name"])
        for found in _BLOCK.finditer(path.read_text())
    ]


def run_block(block: Block, folder: Path, database: Path, *, at_once: bool = False) -> str:
    """Run a block in a process of its own, or `at_once` as a fork of one that has imported all;
    returns its stdout, fails with its stderr."""
    if block.language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", block.code]
    elif block.language == "python":
        command = [sys.executable, "-c", block.code]
    else:
        raise ValueError(f"blocks in {block.language} cannot be run")
    know_machine(database)
    scripts = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "TILEWRIGHT_DB": str(database),
    }
    if at_once and block.language == "python":
        code, out, err = warm(folder, environment, code=block.code)
    else:
        if at_once:
            environment["PATH"] = f"{warm_path()}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    assert code == 0, f"{block.code}\n--- stdout\n{out}\n--- stderr\n{err}"
    return out


class Walk:
    """A reader on the way through a page: every block once, in order, in one folder.

    Tests share one, so that each runs a section; one that runs alone runs what comes before, too.
    """

    def __init__(self, steps: Sequence[Block], folder: Path, *, at_once: bool = False) -> None:
        self.folder = folder
        self._at_once = at_once
        self._steps = steps
        self._printed: list[str] = []

    def to(self, words: str) -> list[str]:
        """What the blocks printed, up to the first one with these words."""
        end = 1 + next(n for n, step in enumerate(self._steps) if words in step.code)
        for step in self._steps[len(self._printed) : end]:
            self._printed.append(self._run(step))
        return self._printed[:end]

    def _run(self, step: Block) -> str:
        return run_block(step, self.folder, self.folder / "walk.db", at_once=self._at_once)

    def to_the_end(self) -> list[str]:
        """What all blocks printed."""
        return self.to(self._steps[-1].code)
