"""Processes that start in milliseconds: forks of one that has imported everything.

A process of its own for every command would import TVM first, two seconds of it. Here the runner
imports everything once and starts no thread; each command is a fork of it, and so are the workers
that the command starts. What such a fork cannot show (an import that fails, what Python does at its
end) is seen by `cold`, which starts `python -m tilewright` as a person would.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, NoReturn

import psutil

import tilewright
from tilewright.core.processes import Child

_MEMORY_BYTES = 6 << 30
"""What a command may ask for at all: far above what is judged, far below what the machine has."""
_FILE_BYTES = 2 << 30
_INTERRUPTED_S = 10.0
_MOST_PATIENCE = 3.0
_PR_SET_PDEATHSIG = 1
_KEPT_CHARACTERS = 1_000_000
_START_ARGUMENTS = 5
"""A worker's command line: Python, its flags, the text that starts it, the module it runs, …"""
_ALSO = ("onnx.reference", "xgboost", "scipy.optimize", "jinja2")
_STARTS_THREADS = ("onnxruntime", "polars", "torch", "openvino", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that has ended: exit code, negative for a signal; what it printed; wall clock and
    CPU time of it and its children in seconds; peak of their resident memory beyond that of the
    runner, in bytes."""

    code: int
    out: str
    err: str
    wall_s: float
    cpu_s: float
    peak_bytes: int
    timed_out: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process runs, with which additions to the environment, and for how long at most, in
    seconds of a machine that does nothing else.

    `interrupt` sends Ctrl-C at the limit instead of killing: then the end has ten seconds more.
    """

    folder: Path
    environment: Mapping[str, str]
    limit_s: float = 20.0
    interrupt: bool = False


class _Refused:
    """An importer that has none of the packages that start threads when they are imported."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raises ImportError for them, leaves all others to the next importer."""
        if name.partition(".")[0] in _STARTS_THREADS:
            raise ImportError(f"{name} starts threads", name=name)


def preload() -> None:
    """Import what any command may need, but for what starts threads: forks of a process with
    threads may hang. Raises RuntimeError when there are some nevertheless."""
    names = [module.name for module in pkgutil.walk_packages(tilewright.__path__, "tilewright.")]
    known = [name for name in names if not name.endswith("__main__")]
    importer: Any = _Refused
    sys.meta_path.insert(0, importer)
    for name in ("tvm.relax", *known, *_ALSO):
        with suppress(ImportError):
            importlib.import_module(name)
    sys.meta_path.remove(importer)
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        raise RuntimeError("importing started threads; set OPENBLAS_NUM_THREADS=1")
    gc.collect()
    gc.freeze()


def forked(function: Callable[[], int], place: Place) -> Ended:
    """Call a function in a fork; its return value is the exit code."""
    before_bytes = psutil.Process().memory_info().rss
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        began_s = time.monotonic()
        runner = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(function, place, (out, err), runner)
        return _followed(pid, place, (out, err), began_s, before_bytes)


def cold(words: Sequence[str], place: Place) -> Ended:
    """`tilewright WORDS…` in a process that was started from nothing."""
    before_bytes = psutil.Process().memory_info().rss
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "tilewright", *words],
            cwd=place.folder,
            env={**os.environ, **place.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=_limit,
        )
        ended = _followed(process.pid, place, (out, err), began_s, before_bytes)
        process.returncode = ended.code  # it was waited for already
        return ended


def _limit() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for kind, most in ((resource.RLIMIT_DATA, _MEMORY_BYTES), (resource.RLIMIT_FSIZE, _FILE_BYTES)):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _become(
    function: Callable[[], int], place: Place, streams: tuple[Any, Any], parent: int
) -> NoReturn:
    """The fork's side."""
    code = 99
    try:
        os.setsid()
        _die_with(parent)
        _limit()
        os.environ.update(place.environment)
        os.chdir(place.folder)
        tempfile.tempdir = None
        _take_streams(os.open(os.devnull, os.O_RDONLY), *(each.fileno() for each in streams))
        start_workers_warm()
        code = function()
    except BaseException:  # noqa: BLE001 - the border of the process: all must get across
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when the runner dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _take_streams(stdin: int, stdout: int, stderr: int) -> None:
    for source, descriptor in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: PTH123, SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: PTH123, SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: PTH123, SIM115


def _limit_here(place: Place) -> float:
    """The limit on this machine now: where more work runs than it has cores, up to three times as
    long."""
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return place.limit_s * min(_MOST_PATIENCE, max(1.0, busy))


def _followed(
    pid: int, place: Place, streams: tuple[Any, Any], began_s: float, before_bytes: int
) -> Ended:
    """The runner's side: wait, at the limit interrupt or kill."""
    watched = os.pidfd_open(pid)
    timed_out = interrupted = False
    try:
        if not _ends(watched, _limit_here(place)):
            interrupted = place.interrupt
            if interrupted:
                signal.pidfd_send_signal(watched, signal.SIGINT)
            if not interrupted or not _ends(watched, _INTERRUPTED_S):
                timed_out = True
                _kill(pid)
    finally:
        os.close(watched)
    _, status, used = os.wait4(pid, 0)
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        out=_text(streams[0]),
        err=_text(streams[1]),
        wall_s=time.monotonic() - began_s,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_bytes=max(0, (used.ru_maxrss << 10) - before_bytes),
        timed_out=timed_out,
        interrupted=interrupted,
    )


def _ends(watched: int, limit_s: float) -> bool:
    import select

    poll = select.poll()
    poll.register(watched, select.POLLIN)
    return bool(poll.poll(1000 * limit_s))


def _kill(pid: int) -> None:
    """End a process and all that it started."""
    started: list[psutil.Process] = []
    with suppress(psutil.Error):
        started = psutil.Process(pid).children(recursive=True)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    for process in started:
        with suppress(psutil.Error):
            process.kill()


def _text(stream: BinaryIO) -> str:
    stream.seek(0)
    text = stream.read().decode(errors="replace")
    half = _KEPT_CHARACTERS // 2
    return text if len(text) <= _KEPT_CHARACTERS else f"{text[:half]}\n…\n{text[-half:]}"


class WarmProcess:
    """As much of `subprocess.Popen` as `tilewright.measure.processes` uses, as a fork."""

    def __init__(self, start: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str]):
        reading, writing = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            become_worker(start, pass_fds, env, writing)
        os.close(writing)
        self.stderr = open(reading, "rb", buffering=0)  # noqa: PTH123, SIM115

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; raises TimeoutExpired."""
        limit_s = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > limit_s:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(0.002)
        return code

    def kill(self) -> None:
        """SIGKILL."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def become_worker(
    start: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], writing: int
) -> NoReturn:
    """A fork's side: be the worker of this command line, with standard error to `writing`."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        _take_streams(null, null, writing)
        _close_all_but({0, 1, 2, *pass_fds})
        os.environ.update(env)
        sys.argv = ["-c", *start[4:]]
        exec(start[3], {"__name__": "__main__"})  # what Python would do with `-c`
        code = 0
    except BaseException:  # noqa: BLE001 - the border of the process: all must get across
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)


def _popen(start: Sequence[str], **given: Any) -> Any:
    warm = len(start) >= _START_ARGUMENTS and start[4] in sys.modules
    if warm and "pass_fds" in given:
        return WarmProcess(start, pass_fds=given["pass_fds"], env=given["env"])
    return subprocess.Popen(start, **given)


def start_workers_warm() -> None:
    """From now on worker processes of this one are forks of it."""
    known = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    replaced: Any = SimpleNamespace(Popen=_popen, **known)
    module: Any = sys.modules[Child.__module__]
    module.subprocess = replaced
