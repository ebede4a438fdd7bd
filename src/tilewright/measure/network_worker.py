"""The child process that compiles, runs and times whole networks; `measure.networks` asks it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.compiler.execute import LoadedNetwork, on_all_cpus, set_threads
from tilewright.compiler.network import (
    LIBRARY,
    compile_network,
    write_library,
    write_weights,
)
from tilewright.core import child, errors, records
from tilewright.core.timings import Burst
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure.beside import going_on
from tilewright.measure.resident import MemoryPeak, ResidentMemory

_Written = TypeVar("_Written")
_LINKING = "Command line:"
"""What TVM says when the compiler that it links with fails: which command, and its output."""

Array = npt.NDArray[np.generic]
_networks: dict[str, LoadedNetwork] = {}


@on_all_cpus()
def compile_to(
    plan: NetworkPlan, placement: records.Placement, packed: Path, folder: Path
) -> CompiledNetwork:
    """Write the library and the weights into `folder`."""
    executable, workspaces = compile_network(plan, placement.target)
    path = folder / LIBRARY
    linked(lambda: write_library(executable, path), path)
    write_weights(folder, plan, packed)
    return CompiledNetwork(workspaces=workspaces, library_bytes=path.stat().st_size)


def linked(write: Callable[[], _Written], path: Path) -> _Written:
    """What `write` answers, which links and writes to `path`. What the file system refuses comes
    out as an OSError, what the compiler that links does not do as a LinkError."""
    try:
        return write()
    except FileNotFoundError as error:
        raise errors.LinkError(f"{error.filename}: {error.strerror}") from error
    except RuntimeError as error:
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
            if os.strerror(number) in str(error):
                raise OSError(number, os.strerror(number), str(path)) from error
        if _LINKING in str(error):
            raise errors.LinkError(" ".join(str(error).split())) from error
        raise


def load(name: str, folder: Path, order: list[str]) -> None:
    """Load a compiled network as `name`."""
    _networks[name] = LoadedNetwork.open(folder, order)


def memory_peak(folder: Path, order: list[str], inputs: list[Array], runs: int) -> MemoryPeak:
    """The memory that a network takes, beyond what this process held before: load, run, forget."""
    memory = ResidentMemory()
    network = LoadedNetwork.open(folder, order)
    for _ in range(runs):
        network.time(inputs, repeats=1, warmup=0)
    return memory.peak()


def unload(name: str) -> None:
    """Forget a network."""
    _networks.pop(name, None)


def keep_running(name: str, inputs: list[Array], flag: str, started: str) -> list[Burst]:
    """Run a network again and again while the file `flag` exists; the file `started` is written
    after the first run, and now and then as long as runs end. Every run since."""
    goes_on = going_on(Path(flag), Path(started))
    return _networks[name].keep_running(inputs, goes_on, Path(started).touch)


def on_network(method: Callable[..., Any], *, rest: bool = False) -> Callable[..., Any]:
    """A handler that calls a method of the network which a request names. With `rest` it returns
    when the thread pool sleeps again: not where somebody reads a meter when it ends."""

    def handler(name: str, *arguments: Any) -> Any:
        found = method(_networks[name], *arguments)
        if rest:
            child.wait_until_asleep()
        return found

    return handler


if __name__ == "__main__":
    child.serve(
        {
            "prepare": set_threads,
            "compile": compile_to,
            "load": load,
            "unload": unload,
            "run": on_network(LoadedNetwork.__call__),
            "time": on_network(LoadedNetwork.time, rest=True),
            "repeat": on_network(LoadedNetwork.repeat),
            "keep running": keep_running,
            "time calls": on_network(LoadedNetwork.time_calls, rest=True),
            "memory peak": memory_peak,
        }
    )
