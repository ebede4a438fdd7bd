"""Worker processes of a test's own process as forks of the one that has imported everything, which
saves each of them the second that TVM's import takes.

A fork of the server of `warm_commands` makes them, since a test process has threads, and forks of
such a process may hang. It is asked for a worker with the files that this inherits, says its
process id at once and how it ended when it did. Workers stay cold whose module the server has not
imported, and those of another search path, which may bring plug-ins.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from time import monotonic
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

from tilewright.core import processes

SOCKET = "workers"
_ASKED_BYTES = 1 << 16
_MOST_FILES = 16
_LOOK_S = 0.02
_FORM = ("-P", "-c")
"""How a worker's command line goes on behind Python: its text, its module, its channel, its parent,
its limits."""


class WarmWorker:
    """As much of `subprocess.Popen` as `tilewright.core.processes` uses; the server's child."""

    def __init__(self, answers: socket.socket, pid: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stderr = open(stderr, "rb", buffering=0)  # noqa: PTH123, SIM115
        self._answers = answers
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; raises TimeoutExpired."""
        end_s = inf if timeout is None else monotonic() + timeout
        while self.returncode is None:
            self._listen(max(0.0, min(_LOOK_S, end_s - monotonic())))
            with self._lock:
                self._look()
            if self.returncode is None and monotonic() >= end_s:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return self.returncode

    def _listen(self, seconds: float) -> None:
        """Until there is an answer, for so long at most. Others may ask meanwhile, and kill."""
        waiting = select.poll()
        with suppress(ValueError, OSError):  # another thread has read it
            waiting.register(self._answers, select.POLLIN)
            waiting.poll(1e3 * seconds)

    def _look(self) -> None:
        """Read the exit code if it has come."""
        if self.returncode is not None:
            return
        self._answers.settimeout(0.0)
        try:
            answer = self._answers.recv(_ASKED_BYTES)
        except BlockingIOError:
            return
        self._answers.close()
        assert answer, "the server of warm workers is gone"
        self.returncode = int(answer)

    def kill(self) -> None:
        """SIGKILL."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, 9)


@contextmanager
def warm_workers() -> Generator[None]:
    """Meanwhile workers that this process starts are forks, where they can be: those that look for
    modules where this process does now."""
    search_path = os.pathsep.join(entry for entry in sys.path if entry)

    def popen(start: Sequence[str], **given: Any) -> Any:
        alike = tuple(start[1:3]) == _FORM and given["env"]["PYTHONPATH"] == search_path
        return (_warm(start, **given) if alike else None) or subprocess.Popen(start, **given)

    known = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    replaced = SimpleNamespace(Popen=popen, **known)
    with mock.patch.object(processes, "subprocess", replaced):
        yield


def started_warm(
    module: str,
    arguments: Sequence[str],
    *,
    files: Sequence[int],
    environment: Mapping[str, str] | None = None,
) -> Any:
    """A process that calls `main` of a module, a fork where that can be. It inherits `files`, and
    gets this environment instead of ours; its second argument is replaced by the process id of what
    forked it, which dies with this one."""
    start = [sys.executable, *_FORM, f"from {module} import main; main()", module, *arguments]
    search_path = os.pathsep.join(entry for entry in sys.path if entry)
    env = {**(os.environ if environment is None else environment), "PYTHONPATH": search_path}
    return _warm(start, pass_fds=files, env=env) or subprocess.Popen(
        start, pass_fds=files, env=env, stderr=subprocess.PIPE, start_new_session=True
    )


def _warm(
    start: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], **_given: Any
) -> WarmWorker | None:
    """A worker, or nothing where it has to start cold."""
    from helpers.commands.warm_commands import server, started

    if not started() and threading.current_thread() is not threading.main_thread():
        return None  # a server would end with the thread that started it
    asked = {
        "start": [*start],
        "files": [*pass_fds],
        "environment": {**env},
        "folder": os.getcwd(),  # noqa: PTH109
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    with ExitStack() as opened:
        answers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened.callback(answers.close)
        reading, writing = os.pipe()
        opened.callback(os.close, reading)
        try:
            answers.connect(str(server() / SOCKET))
            with tempfile.TemporaryFile() as told:
                told.write(json.dumps(asked).encode())
                told.flush()
                socket.send_fds(answers, [b"worker"], [told.fileno(), writing, *pass_fds])
            pid = int(answers.recv(_ASKED_BYTES))
        finally:
            os.close(writing)
        if not pid:
            return None
        opened.pop_all()
    return WarmWorker(answers, pid, reading)


def serve_workers(listening: socket.socket) -> NoReturn:
    """Fork workers for whoever asks, until the parent dies."""
    watched = selectors.DefaultSelector()
    watched.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in watched.select():
            if key.fileobj is listening:
                _begin(listening.accept()[0], watched)
            else:
                _end(key, watched)


def _begin(asking: socket.socket, watched: selectors.BaseSelector) -> None:
    _, files, _, _ = socket.recv_fds(asking, 64, _MOST_FILES)
    told, *given = files
    with open(told, "rb") as file:  # noqa: PTH123
        file.seek(0)
        asked = json.load(file)
    pid = 0
    if asked["start"][4] in sys.modules:
        maker = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(asked, given, maker)
        watched.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, asking))
    for descriptor in given:
        os.close(descriptor)
    with suppress(OSError):
        asking.send(str(pid).encode())
    if not pid:
        asking.close()


def _end(key: selectors.SelectorKey, watched: selectors.BaseSelector) -> None:
    pid, asking = key.data
    watched.unregister(key.fileobj)
    os.close(key.fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with asking, suppress(OSError):
        asking.send(str(code).encode())


def _become(asked: Mapping[str, Any], given: Sequence[int], maker: int) -> NoReturn:
    """The fork's side: take the files' numbers, the folder, cores and environment."""
    from fuzzing.warm import become_worker

    beyond = 1 + max(asked["files"])  # a number that a file is to get may be another one's still
    stderr, *inherited = [fcntl.fcntl(each, fcntl.F_DUPFD, beyond) for each in given]
    for descriptor, number in zip(inherited, asked["files"], strict=True):
        os.dup2(descriptor, number)
    os.chdir(asked["folder"])
    os.sched_setaffinity(0, asked["cpus"])
    os.environ.clear()
    tempfile.tempdir = None
    environment = asked["environment"]
    sys.path[:] = environment["PYTHONPATH"].split(os.pathsep)
    start = [*asked["start"]]
    start[6] = str(maker)
    become_worker(start, asked["files"], environment, stderr)
