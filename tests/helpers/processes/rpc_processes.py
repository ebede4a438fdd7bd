"""A tracker and servers of TVM's on loopback, each in a process that dies with the test's: forks of
one that has imported TVM, which takes a second."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

import psutil

from helpers.processes.warm_workers import started_warm
from tilewright.core.errors import TargetError
from tilewright.measure.boards import Tracker

LAST_PORT = 60_000


class Process:
    """A running tracker or server; `port` is where it listens."""

    def __init__(self, *arguments: str, threads: int = 2) -> None:
        reading, writing = os.pipe()
        with open(reading) as told:  # noqa: PTH123
            try:
                self._process = started_warm(
                    __name__,
                    (str(writing), str(os.getpid()), *arguments),
                    files=[writing],
                    environment={**os.environ, "TVM_NUM_THREADS": str(threads)},
                )
            finally:
                os.close(writing)
            line = told.readline()
        assert line, f"{arguments} did not start"
        self.port = int(line)

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill(self) -> None:
        """End it, and the processes that serve sessions, with SIGKILL."""
        tree = self._tree()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in tree:
            with suppress(psutil.Error):
                process.kill()
        self._process.wait()
        self._process.stderr.close()

    def freeze(self) -> None:
        """Stop it and all it has started, as a machine that hangs."""
        for process in [psutil.Process(self._process.pid), *self._tree()]:
            process.suspend()

    @property
    def serving(self) -> bool:
        """Whether a session is open."""
        return bool(self._tree())


class Farm:
    """A tracker with servers of one key."""

    def __init__(self) -> None:
        self.tracker = Process("tracker")
        self.servers: list[Process] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.tracker.port}"

    def add(self, key: str = "box", *, threads: int = 2, kind: str = "server") -> Process:
        """Start another server and wait until the tracker knows it; a `board` offers peers."""
        server = Process(kind, str(self.tracker.port), key, threads=threads)
        self.servers.append(server)
        tracker = Tracker(host="127.0.0.1", port=self.tracker.port)
        mine = ("127.0.0.1", server.port)
        while mine not in _known(tracker, key):
            time.sleep(0.05)
        return server

    def stop(self) -> None:
        for process in [*self.servers, self.tracker]:
            process.kill()


def _known(tracker: Tracker, key: str) -> list[tuple[str, int]]:
    try:
        return tracker.servers(key)
    except TargetError:
        return []


@contextmanager
def farm(servers: int, *, threads: int = 2) -> Generator[Farm]:
    """A tracker and some servers of the key `box`, each with so many threads; killed whatever
    happens."""
    found: Farm | None = None
    try:
        found = Farm()
        for _ in range(servers):
            found.add(threads=threads)
        yield found
    finally:
        if found is not None:
            found.stop()


def _serve(parent: int, kind: str, *arguments: str) -> Iterator[int]:
    """Start what was asked for; yields its port."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    first = 20_000 + os.getpid() % 30_000
    if kind == "tracker":
        from tvm.rpc.tracker import PopenTrackerServerState

        yield PopenTrackerServerState("127.0.0.1", first, LAST_PORT).port or 0
    else:
        from tvm.rpc.server import PopenRPCServerState

        tracker, key = arguments
        if kind == "board":
            offer_peers()
        state = PopenRPCServerState(
            "127.0.0.1", first, LAST_PORT, False, ("127.0.0.1", int(tracker)), key
        )
        yield state.port or 0


def offer_peers() -> None:
    """Register what a server of tilewright's offers beside TVM's own."""
    import tvm_ffi

    from tilewright.measure.board_server import BoardPeers

    for name, function in BoardPeers(sorted(os.sched_getaffinity(0))).functions().items():
        tvm_ffi.register_global_func(name, function, override=True)


def main() -> None:
    """Start what the command line names, tell its port, and wait for the end."""
    told, parent, *asked = sys.argv[2:]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for port in _serve(int(parent), *asked):
        os.write(int(told), f"{port}\n".encode())
        while True:
            signal.pause()
