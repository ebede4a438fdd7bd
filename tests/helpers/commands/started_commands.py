"""Commands that go on while a test looks at them, as forks of a process that has imported all."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from threading import Thread

from helpers.processes.warm_workers import started_warm
from tilewright.core.signals import die_with_parent


class Started:
    """As much of `subprocess.Popen` as tests of commands use. `tilewright WORDS…` in `folder`, with
    exactly this environment, in a process group of its own; it dies with the test's process."""

    def __init__(self, folder: Path, environment: Mapping[str, str], words: Sequence[str]) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115
        out = self._out.fileno()
        with chdir(folder):
            self._process = started_warm(
                __name__, (str(out), str(os.getpid()), *words), files=[out], environment=environment
            )
        self.pid: int = self._process.pid
        with self._process.stderr as errors:
            self.stderr = open(os.dup(errors.fileno()), encoding="utf-8")  # noqa: PTH123, SIM115

    @property
    def returncode(self) -> int | None:
        """The exit code once it has ended."""
        return self._process.returncode

    def poll(self) -> int | None:
        """The same, after a look."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """As `kill` does."""
        os.kill(self.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Stdout and stderr when it has ended; raises TimeoutExpired."""
        said: list[str] = []
        reading = Thread(target=lambda: said.append(self.stderr.read()), daemon=True)
        reading.start()  # a pipe that nobody reads stops who writes more than it holds
        self._process.wait(timeout)
        reading.join()
        self._out.seek(0)
        with self._out, self.stderr:
            return self._out.read(), said[0]


def main() -> None:
    """Be the command of the command line, with stdout where the first argument says."""
    from fuzzing.warm import start_workers_warm
    from tilewright.cli.main import main as command

    out, parent, *words = sys.argv[2:]
    die_with_parent(int(parent))
    os.dup2(int(out), 1)
    os.close(int(out))
    sys.stderr.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start_workers_warm()
    code = command(words)
    sys.stdout.flush()
    atexit._run_exitfuncs()  # temporary folders go then; a fork leaves this out
    os._exit(code)
