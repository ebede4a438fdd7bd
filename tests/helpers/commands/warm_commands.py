"""Commands as forks of a process that has imported everything, which saves the seconds that every
process and every worker of its own needs to import TVM.

One server for each test process: it is started by the first command or worker, serves commands one
after the other, and ends with the tests. A fork of it makes the test process's own workers. What
such forks cannot show (an import that fails, what Python does at its end) is seen by the commands
that tests start from nothing. `benchmarks/fuzzing/warm.py` explains the forks.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any

from helpers.processes.warm_workers import SOCKET, serve_workers
from tilewright.core.signals import die_with_parent

LIMIT_S = 300.0
_ALSO = (
    *("helpers.commands.started_commands", "helpers.processes.rpc_processes"),
    *("helpers.processes.small_searches", "helpers.fakes.toy_serving_worker"),
    *("helpers.processes.simulated_gpu", "helpers.processes.simulated_gpu_networks"),
    "helpers.processes.simulated_gpu_parts",
    *("tvm.rpc.server", "tvm.rpc.tracker"),
)
"""What processes of tests need that no command does."""
_SHIM = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = {{"words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ),
             "cpus": sorted(os.sched_getaffinity(0))}}
    server.sendall(json.dumps(asked).encode())
    server.shutdown(socket.SHUT_WR)
    answer = json.loads(server.makefile("rb").read())
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["code"])
"""


def warm(folder: Path, environment: Mapping[str, str], **asked: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command of these `words`, or of a program in `code`."""
    cpus = sorted(os.sched_getaffinity(0))
    told = {**asked, "folder": str(folder), "environment": {**environment}, "cpus": cpus}
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(2 * LIMIT_S)
        asking.connect(str(server() / "socket"))
        asking.sendall(json.dumps(told).encode())
        asking.shutdown(socket.SHUT_WR)
        answer = json.loads(asking.makefile("rb").read())
    return answer["code"], answer["out"], answer["err"]


def warm_path() -> Path:
    """A folder for the search path in which `tilewright` is a warm command."""
    return server() / "bin"


def server() -> Path:
    """The folder of this process's server, which ends with it."""
    return _server(os.getpid())


def started() -> bool:
    """Whether this process has a server."""
    return bool(_server.cache_info().currsize)


@cache
def _server(_owner: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tilewright-warm-"))
    atexit.register(_remove, folder, os.getpid())
    (folder / "bin").mkdir()
    shim = folder / "bin" / "tilewright"
    shim.write_text(_SHIM.format(python=sys.executable, address=str(folder / "socket")))
    shim.chmod(0o755)
    search = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "benchmarks")]
    search += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    ours = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(search)}
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder / "socket"), str(os.getpid())],
        env={**os.environ, **ours},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return folder


def _remove(folder: Path, owner: int) -> None:
    """At the end of the process that made it, and not at that of its forks."""
    if os.getpid() == owner:
        rmtree(folder, ignore_errors=True)


def _serve(address: str) -> None:
    from fuzzing.warm import preload

    for module in _ALSO:
        import_module(module)
    preload()
    _serve_workers_beside(str(Path(address).with_name(SOCKET)))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as sent:
                connection.sendall(json.dumps(_done(**json.load(sent))).encode())


def _serve_workers_beside(address: str) -> None:
    """In a fork of its own: a command may take minutes, and a worker is wanted at once."""
    maker = os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen()
        if os.fork() == 0:
            die_with_parent(maker)
            serve_workers(listening)


def _done(
    *,
    folder: str,
    environment: Mapping[str, str],
    cpus: Sequence[int],
    words: Sequence[str] = (),
    code: str = "",
) -> dict[str, Any]:
    from fuzzing.warm import Place, forked
    from tilewright.cli.main import main

    def work() -> int:
        os.sched_setaffinity(0, cpus)
        try:
            if not code:
                return main(list(words))
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
            return 0
        finally:
            atexit._run_exitfuncs()  # temporary folders go then; a fork leaves this out

    ended = forked(work, Place(folder=Path(folder), environment=environment, limit_s=LIMIT_S))
    return {"code": ended.code, "out": ended.out, "err": ended.err}


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    _serve(sys.argv[1])
