"""The child process that builds for remote devices or holds the session of one of them.

`measure.remote` is the other side for kernels, `measure.remote_networks` for whole networks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.compiler.build import kernel_identity, kernel_module
from tilewright.compiler.features.kinds import kernel_features
from tilewright.compiler.network import compile_network, write_weights
from tilewright.compiler.remote import DeviceLost, ExportedKernel, RemoteSession, export_kernel
from tilewright.compiler.remote_network import RemoteNetworks, export_network
from tilewright.compiler.stopwatch import has_stopwatch
from tilewright.core.child import serve
from tilewright.core.records import Candidate, Placement, Protocol
from tilewright.core.scratch import scratch_folder
from tilewright.graph.array_files import map_array
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.workload import parse_workload
from tilewright.hardware.remote import ServerFacts
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure.linking import linked

_Arrays = list[npt.NDArray[np.generic]]
_sessions: list[RemoteSession] = []
_networks: list[RemoteNetworks] = []
"""What the session holds: one, where there is a session."""


def prepare(_placement: Placement) -> None:
    """Nothing is run here, so nothing is to be prepared."""


def build(
    slot: int, workload_text: str, candidate: Candidate, placement: Placement, folder: str
) -> dict[str, Any]:
    """Build a candidate's library; the answer's `kernel` is what `measure` wants."""
    workload = parse_workload(workload_text)
    kernel = export_kernel(
        workload, candidate, placement.target, placement.resources, Path(folder), f"kernel-{slot}"
    )
    return {"kernel_hash": kernel.kernel_hash, "build_s": kernel.build_s, "kernel": kernel}


def identify(workload_text: str, candidate: Candidate, placement: Placement) -> str:
    """The hash of a candidate's scheduled kernel, without compiling it."""
    return kernel_identity(
        parse_workload(workload_text), candidate, placement.target, placement.resources
    )


def features(
    workload_text: str, candidate: Candidate, placement: Placement, kind: str
) -> npt.NDArray[np.float64]:
    """A row of features of a candidate's scheduled kernel."""
    module = kernel_module(
        parse_workload(workload_text), candidate, placement.target, placement.resources
    )
    return kernel_features(module, placement.tvm_target, kind)


def connect(host: str, port: int, match: str, session_s: float) -> ServerFacts:
    """Open a session on a server, giving up an earlier one; what it says about itself."""
    disconnect()
    session = RemoteSession(host, port, match, session_s)
    _sessions.append(session)
    _networks.append(RemoteNetworks(session))
    return _kept(session.facts)


def use_threads(threads: int) -> None:
    """Limit the threads of kernels in this session."""
    session = _session()
    _kept(lambda: session.use_threads(threads))


def disconnect() -> None:
    """Give the device back."""
    _networks.clear()
    _sessions.clear()


def measure(
    kernel: ExportedKernel, workload_text: str, protocol: Protocol, seed: int, give_up_s: float
) -> list[float]:
    """Time a kernel on the device."""
    session, workload = _session(), parse_workload(workload_text)
    return _kept(
        lambda: session.timing(kernel, workload, protocol, seed).samples(protocol, give_up_s)
    )


def evaluate(
    kernel: ExportedKernel, workload_text: str, candidate: Candidate, folder: str, count: int
) -> npt.NDArray[np.generic]:
    """The kernel's result there on logical arrays, `0.npy`, `1.npy` … in a folder."""
    session, workload = _session(), parse_workload(workload_text)
    arrays = [
        map_array(Path(folder) / f"{number}.npy", argument.type.dtype)
        for number, argument in enumerate(workload.arguments[:count])
    ]
    return _kept(lambda: session.evaluate(kernel, workload, candidate, arrays))


def peaks(placement: Placement) -> dict[str, float]:
    """What the device reaches; the names are those of the database."""
    session = _session()
    with scratch_folder() as folder:
        return _kept(lambda: session.peaks(placement.target, placement.resources, folder))


def compile_to(
    plan: NetworkPlan, placement: Placement, packed: str, folder: str
) -> CompiledNetwork:
    """Write a network's library, or what the device makes one of, and its weights."""
    timed = has_stopwatch(placement.target)
    executable, workspaces = compile_network(plan, placement.target, timed=timed)
    path = linked(lambda: export_network(executable, placement.target, Path(folder)), folder)
    write_weights(Path(folder), plan, Path(packed))
    return CompiledNetwork(workspaces=workspaces, library_bytes=path.stat().st_size)


def load_network(name: str, folder: str, order: list[str]) -> None:
    """Upload a compiled network as `name`."""
    _kept(lambda: _held().load(name, Path(folder), order))


def unload_network(name: str) -> None:
    """Forget a network."""
    _kept(lambda: _held().unload(name))


def run_network(name: str, inputs: _Arrays) -> _Arrays:
    """The outputs of one run."""
    return _kept(lambda: _held().run(name, inputs))


def time_network(name: str, inputs: _Arrays, repeats: int, warmup: int) -> list[float]:
    """Seconds of each run, by the device's clock."""
    return _kept(lambda: _held().time(name, inputs, repeats, warmup))


def repeat_network(name: str, inputs: _Arrays, seconds: float) -> int:
    """Run for at least so many seconds; returns how often."""
    return _kept(lambda: _held().repeat(name, inputs, seconds))


def time_calls(name: str, inputs: _Arrays, repeats: int) -> list[tuple[str, float]]:
    """Symbol and median seconds of each call in its place, by the device's clock."""
    return _kept(lambda: _held().time_calls(name, inputs, repeats))


def send(path: str, name: str) -> None:
    """Put a file into the session's folder."""
    _kept(lambda: _session().send(Path(path), name))


def fetch(name: str, path: str) -> None:
    """Get a file from the session's folder."""
    Path(path).write_bytes(_kept(lambda: _session().file(name)))


def ask(function: str, *arguments: str) -> str | None:
    """What a function of the server answers, None where it has none of that name."""

    def asked() -> str | None:
        try:
            found = _session().function(function)
        except AttributeError:
            return None
        return str(found(*arguments))

    return _kept(asked)


def _held() -> RemoteNetworks:
    _session()
    return _networks[0]


def _session() -> RemoteSession:
    if not _sessions:
        raise DeviceLost("no session is open")
    return _sessions[0]


def _kept(work: Callable[[], Any]) -> Any:
    """Do it; an error that takes the session along becomes `DeviceLost`."""
    session = _session()
    try:
        return work()
    except Exception as error:
        if session.alive():
            raise
        disconnect()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DeviceLost(lines[-1]) from error


if __name__ == "__main__":
    serve(
        {
            "prepare": prepare,
            "build": build,
            "identify": identify,
            "features": features,
            "connect": connect,
            "use_threads": use_threads,
            "disconnect": disconnect,
            "measure": measure,
            "evaluate": evaluate,
            "peaks": peaks,
            "compile network": compile_to,
            "load network": load_network,
            "unload network": unload_network,
            "run network": run_network,
            "time network": time_network,
            "repeat network": repeat_network,
            "time calls": time_calls,
            "send": send,
            "fetch": fetch,
            "ask": ask,
        }
    )
