"""Running a tilewright command while watching the memory of its processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

_INTERVAL_S = 0.5
_WORKER = re.compile(r"tilewright\.measure\.(?:peers\.)?(\w+_(?:worker|engine))")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


class CommandFailed(Exception):
    """A command ended with another exit code than 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command printed and used.

    `peak_bytes` is the largest resident memory of any process of a role: `main`, or the module a
    worker runs. `answer` is the json envelope.
    """

    answer: dict[str, Any]
    wall_s: float
    peak_bytes: dict[str, int]


@dataclass(slots=True)
class _Watch:
    """Reads the kernel's own high-water marks, so that only the last moments can be missed."""

    pid: int
    peak_bytes: dict[str, int] = field(default_factory=dict[str, int])
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.done.wait(_INTERVAL_S):
            try:
                main = psutil.Process(self.pid)
                self._note("main", self.pid)
                for child in main.children(recursive=True):
                    self._note(self._role(child), child.pid)
            except psutil.Error:
                continue

    def _note(self, role: str, pid: int) -> None:
        try:
            found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
        except OSError:
            return
        if found:
            peak = int(found[1]) << 10
            self.peak_bytes[role] = max(peak, self.peak_bytes.get(role, 0))

    @staticmethod
    def _role(process: psutil.Process) -> str:
        found = _WORKER.search(" ".join(process.cmdline()))
        return found[1] if found else process.name()


def run_tilewright(arguments: Sequence[str], *, log: Path) -> Ran:
    """Run `tilewright … --format json`; its stderr goes to `log`. Raises CommandFailed."""
    command = [sys.executable, "-m", "tilewright", *arguments, "--format", "json"]
    began_s = time.monotonic()
    with log.open("a") as errors:
        errors.write(f"$ tilewright {' '.join(arguments)}\n")
        errors.flush()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        watch = _Watch(process.pid)
        thread = threading.Thread(target=watch.run, daemon=True)
        thread.start()
        try:
            output, _ = process.communicate()
        finally:
            watch.done.set()
            thread.join()
            if process.poll() is None:
                process.terminate()
    wall_s = time.monotonic() - began_s
    if process.returncode != 0:
        raise CommandFailed(f"exit code {process.returncode}; see log/{log.name}")
    return Ran(answer=json.loads(output), wall_s=wall_s, peak_bytes=watch.peak_bytes)
