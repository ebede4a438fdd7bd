"""Servers of TVM's on this machine, which stand for devices of one core behind a tracker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager

from tilewright.core.errors import TargetError
from tilewright.measure.boards import Tracker


@contextmanager
def running(module: str, *words: str, cpus: Collection[int] = ()) -> Generator[None]:
    """A module of TVM's as a program with one thread, on some CPUs where they are named, killed at
    the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--host", "127.0.0.1", *words],
        env={**os.environ, "TVM_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        if cpus:
            os.sched_setaffinity(process.pid, cpus)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def devices(port: int, keys: Sequence[str], cpus: Sequence[int] = ()) -> Generator[str]:
    """A tracker that knows a server for each key, each on one CPU where they are named; its
    address."""
    with ExitStack() as stack:
        ports = ("--port", str(port), "--port-end", str(port + 1))
        stack.enter_context(running("tvm.exec.rpc_tracker", *ports))
        address = f"127.0.0.1:{port}"
        for number, key in enumerate(keys):
            own = str(port + 100 + 10 * number)
            words = ("--port", own, "--port-end", str(int(own) + 10), "--silent", "--key", key)
            where = cpus[number : number + 1]
            server = running("tvm.exec.rpc_server", *words, "--tracker", address, cpus=where)
            stack.enter_context(server)
        end_s = time.monotonic() + 60
        for key in keys:
            while not _known(port, key, keys.count(key)):
                if time.monotonic() > end_s:
                    raise TargetError(f"no server of {key!r} is there after a minute")
                time.sleep(0.2)
        yield address


def _known(port: int, key: str, count: int) -> bool:
    """Whether the tracker knows so many servers of a key."""
    try:
        return len(Tracker(host="127.0.0.1", port=port).servers(key)) >= count
    except TargetError:
        return False
