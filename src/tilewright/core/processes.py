"""Persistent child processes that may crash, hang or run out of memory at little cost."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import psutil

from tilewright.core.child import ANSWER, LENGTH, OUT_OF_MEMORY
from tilewright.core.scratch import PrivateFolder, scratch_folder
from tilewright.core.settings import child_environment

_START = "from tilewright.core.child import main; main()"
_LESS_OF_TVM = {"TVM_DEVICE_BACKEND_AUTOLOAD": "0"}
"""`compiler.backends` loads the rest where it is needed."""
_STDERR_BYTES = 16 << 10
_STDERR_LINES = 40
_SLICE_S = 0.2
_LEAST_S = 1e-3
_STOP_S = 2.0
_SIGNALS = {number.value: number.name for number in signal.Signals}
_MEMORY_SIGNS = ("bad_alloc", "MemoryError", "out of memory", "Cannot allocate memory")


class ChildError(Exception):
    """A request to a child process gave no answer; the child starts anew with the next one."""


class ChildTimeout(ChildError):
    """The answer did not come in time; the child and its descendants were killed."""


class ChildCrash(ChildError):
    """The child ended by itself.

    `exit_code` is negative for a signal, as in `subprocess`; `stderr` holds its last lines.
    """

    def __init__(self, exit_code: int, stderr: str) -> None:
        signalled = f"signal {_SIGNALS.get(-exit_code, -exit_code)}"
        name = signalled if exit_code < 0 else f"exit code {exit_code}"
        super().__init__(f"child process ended with {name}" + (f":\n{stderr}" if stderr else ""))
        self.exit_code = exit_code
        self.stderr = stderr


class ChildOutOfMemory(ChildError):
    """The child hit its memory limit."""


class RemoteError(Exception):
    """A handler raised; the child lives on. `kind` is the exception's class name there."""

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.trace = trace


class Child:
    """A process that runs `module` and answers requests, one at a time, until stopped.

    It starts with the first request and again after a crash or timeout; `environment` is added to
    ours, `memory_limit_bytes` bounds its private memory (RLIMIT_DATA), and `cpus` is its affinity
    from before anything is imported; the open files `inherited` have the same numbers there. Its
    temporary files go with it. It has a session of its own,
    so Ctrl-C in a terminal does not reach it, and dies with its parent. Linux ties that to the
    *thread* that started it: make the first request from a thread that outlives the child.
    """

    def __init__(
        self,
        module: str,
        *,
        environment: Mapping[str, str] | None = None,
        memory_limit_bytes: int | None = None,
        cpus: Sequence[int] | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self.module = module
        self._inherited = tuple(inherited)
        self.environment = dict(environment or {})
        self._memory_limit_bytes = memory_limit_bytes
        self._cpus = tuple(cpus or ())
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._stderr = bytearray()
        self._reader: threading.Thread | None = None
        self._scratch: PrivateFolder | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def launch(self) -> None:
        """Start the process without waiting for it, so that several can start side by side."""
        with self._lock:
            if self.pid is None:
                self._start()

    def request(self, message: tuple[Any, ...], timeout_s: float) -> Any:
        """Send (handler name, *arguments) and return what the handler returned.

        The time for starting the process counts. Raises `ChildTimeout`, `ChildCrash` or
        `ChildOutOfMemory`, after which the process is gone, or `RemoteError` when the handler
        raised. Interrupting a request kills the process, too: its answer would come too late.
        """
        return self._requested(message, timeout_s, started=False)

    def request_again(self, message: tuple[Any, ...], timeout_s: float) -> Any:
        """The same of a process that knows something from an earlier request: where it is gone,
        another one is not started, which would know nothing."""
        return self._requested(message, timeout_s, started=True)

    def _requested(self, message: tuple[Any, ...], timeout_s: float, *, started: bool) -> Any:
        frame = pickle.dumps(message, protocol=5)
        with self._lock:
            deadline_s = time.monotonic() + timeout_s
            if self.pid is None:
                if started and self._process is not None:
                    raise self._post_mortem()
                self._start()
            try:
                status, *content = pickle.loads(self._exchange(frame, deadline_s))
            except TimeoutError:
                self._kill()
                raise ChildTimeout(f"no answer within {timeout_s:g} s") from None
            except ConnectionError:
                raise self._post_mortem() from None
            except BaseException:
                self._kill()
                raise
            if status == OUT_OF_MEMORY:
                self._kill()
                raise ChildOutOfMemory(content[0])
        if status == ANSWER:
            return content[0]
        raise RemoteError(*content)

    def abort(self) -> None:
        """Kill the process from another thread than the one that waits for its answer, which gets
        a `ChildCrash`."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def stop(self) -> None:
        """End the process: by closing its channel, after two seconds by force."""
        with self._lock:
            if self._process is not None:
                self._close_channel()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_STOP_S)
                self._kill()

    def _start(self) -> None:
        self._kill()
        search_path = os.pathsep.join(entry for entry in sys.path if entry)
        limits = [str(self._memory_limit_bytes or 0), ",".join(map(str, self._cpus))]
        self._scratch = scratch_folder()
        own = {"PYTHONPATH": search_path, "TMPDIR": str(self._scratch.path), **_LESS_OF_TVM}
        self._channel, theirs = socket.socketpair()
        with theirs:
            channel = [str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, self.module, *channel, *limits],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), *self._inherited),
                env=child_environment(**{**own, **self.environment}),
                start_new_session=True,
            )
        self._stderr = bytearray()
        self._reader = threading.Thread(
            target=_keep_tail, args=(self._process, self._stderr), daemon=True
        )
        self._reader.start()

    def _exchange(self, frame: bytes, deadline_s: float) -> bytes:
        """The child's answer to a request. Raises TimeoutError, and ConnectionError where the child
        ends meanwhile."""
        channel = self._channel
        assert channel is not None
        channel.settimeout(max(_LEAST_S, deadline_s - time.monotonic()))
        channel.sendall(LENGTH.pack(len(frame)) + frame)
        (size,) = LENGTH.unpack(self._received(channel, LENGTH.size, deadline_s))
        return self._received(channel, size, deadline_s)

    def _received(self, channel: socket.socket, size: int, deadline_s: float) -> bytes:
        """So many bytes of the child's. The process is watched, too: a grandchild that inherited
        the socket would keep it open after the child's death."""
        received = bytearray()
        while len(received) < size:
            runs, left_s = self.pid is not None, deadline_s - time.monotonic()
            channel.settimeout(max(_LEAST_S, min(_SLICE_S, left_s)))
            try:
                chunk = channel.recv(min(size - len(received), 1 << 20))
            except TimeoutError:
                if not runs:
                    raise ConnectionAbortedError from None
                if left_s <= _SLICE_S:
                    raise
                continue
            if not chunk:
                raise ConnectionAbortedError
            received += chunk
        return bytes(received)

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _kill(self) -> None:
        """End the process, its descendants and its group with SIGKILL, and reap it."""
        self._close_channel()
        process, self._process = self._process, None
        if process is not None:
            descendants: list[psutil.Process] = []
            if process.poll() is None:
                with suppress(psutil.Error):
                    descendants = psutil.Process(process.pid).children(recursive=True)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            for descendant in descendants:
                with suppress(psutil.Error):
                    descendant.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(_STOP_S)
        if self._scratch is not None:
            self._scratch.close()

    def _post_mortem(self) -> ChildError:
        """Why the process ended, from its exit status and its last words."""
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        exit_code = process.wait()
        self._kill()
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        last = "\n".join(lines[-_STDERR_LINES:])
        if exit_code != 0 and any(sign in line for line in lines for sign in _MEMORY_SIGNS):
            return ChildOutOfMemory(last)
        return ChildCrash(exit_code, last)


def _keep_tail(process: subprocess.Popen[bytes], tail: bytearray) -> None:
    """Read a process's standard error to its end and keep the last bytes in `tail`."""
    assert process.stderr is not None
    with process.stderr as stream:
        while chunk := os.read(stream.fileno(), 1 << 14):
            tail += chunk
            del tail[:-_STDERR_BYTES]
