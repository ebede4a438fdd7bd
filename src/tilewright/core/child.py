"""The child's side of a worker process: how it starts, and how it answers requests.

`tilewright.core.processes` is the other side. Messages are pickles behind an eight-byte length,
on a socket of their own, so that nothing an engine prints can end up between them.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import pickle
import resource
import runpy
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from typing import Any

from tilewright.core.errors import ProcessSpoilt
from tilewright.core.signals import die_with_parent, left_to_parent

LENGTH = struct.Struct("<Q")
ANSWER, ERROR, OUT_OF_MEMORY = "answer", "error", "out of memory"
_PEERS = "tilewright.measure.peers."
_NO_MEMORY = "std::bad_alloc"
"""What TVM's errors say when an allocation fails."""


def main() -> None:
    """Set the process up, then run the module named on the command line as `__main__`.

    Arguments: module, the socket's descriptor, the parent's process id, memory limit in bytes (0
    for none), CPUs separated by commas (may be empty). Affinity and limit are in force before the
    module, and so any engine it imports, is loaded.
    """
    module, channel, parent, limit, cpus = sys.argv[1:6]
    die_with_parent(int(parent))
    left_to_parent()
    os.set_inheritable(int(channel), False)
    os.dup2(2, 1)
    faulthandler.enable()
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    if int(limit):
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not module.startswith(_PEERS):
        sys.meta_path.insert(0, _LessOfTvm())
    sys.argv = [module, channel]
    gc.disable()  # until it serves: nothing that is imported becomes garbage
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - os._exit leaves them out
    os._exit(0)  # engines take a tenth of a second to take themselves apart


class _LessOfTvm(MetaPathFinder):
    """Does not find what TVM tries to import for nothing of ours: torch, two seconds of every
    process where it is installed, and its sessions of several machines, whose import fails anyhow,
    by an error that reads the symbols of every library first.

    `None` among the modules would do as much for `import torch`, but scikit-learn takes what stands
    there for the module.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse them; leave all others to who comes next."""
        if fullname in ("torch", "tvm.runtime.disco"):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _answer(handlers: Mapping[str, Callable[..., Any]], request: bytes) -> bytes:
    """Run one request; whatever goes wrong in it becomes part of the answer."""
    try:
        name, *arguments = pickle.loads(request)
        return pickle.dumps((ANSWER, handlers[name](*arguments)), protocol=5)
    except ProcessSpoilt as error:
        raise SystemExit(str(error)) from None
    except Exception as error:  # noqa: BLE001 - the border of the process: all must get across
        if isinstance(error, MemoryError) or _NO_MEMORY in str(error):
            return pickle.dumps((OUT_OF_MEMORY, str(error) or "MemoryError"))
        trace = traceback.format_exc()
        return pickle.dumps((ERROR, type(error).__name__, str(error), trace))


def serve(handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests until the parent closes the channel.

    A request is a tuple: the handler's name, then its arguments. Call this at the end of a module
    that `Child` starts, under `if __name__ == "__main__"`. Values that cross must be picklable and
    must not be instances of classes defined in that module.
    """
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rwb") as stream:
        while len(header := stream.read(LENGTH.size)) == LENGTH.size:
            request = stream.read(*LENGTH.unpack(header))
            answer = _answer(handlers, request)
            del request
            stream.write(LENGTH.pack(len(answer)) + answer)
            stream.flush()


def wait_until_asleep(limit_s: float = 2.0, pause_s: float = 0.02) -> bool:
    """Return once this process's threads have stopped spinning; False after `limit_s`.

    Thread pools of engines spin for a while after their last kernel and would take cycles from
    whatever is timed next in another process.
    """
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        before_s = time.process_time()
        time.sleep(pause_s)
        if time.process_time() - before_s < pause_s * 0.05:
            return True
    return False
