"""The child process that builds for remote devices or holds the session of one of them.

`measure.remote` is the other side for kernels, `measure.remote_networks` for whole networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.compiler.copies import Copied, timed_copies
from tilewright.compiler.network import compile_network, write_weights
from tilewright.compiler.remote import (
    DeviceLost,
    ExportedKernel,
    RemoteNetworks,
    RemoteSession,
    export_kernel,
    export_network,
)
from tilewright.compiler.stopwatch import has_stopwatch
from tilewright.core.child import serve
from tilewright.core.errors import last_line
from tilewright.core.records import Candidate, Placement, Protocol
from tilewright.core.scratch import scratch_folder
from tilewright.core.targets import Resources, Target
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.workload import parse_workload
from tilewright.hardware.remote import ServerFacts
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure.kernel_worker import features, identify, logical_arrays
from tilewright.measure.network_worker import linked

_sessions: list[tuple[RemoteSession, RemoteNetworks]] = []
"""What is open, and the networks that it holds: one, where there is a session."""


def prepare(_threads: int, _cpus: Sequence[int]) -> None:
    """Nothing is run here, so nothing is to be prepared."""


def build(
    slot: int, workload_text: str, candidate: Candidate, placement: Placement, folder: str
) -> dict[str, Any]:
    """Build a candidate's library; the answer's `kernel` is what `measure` wants."""
    kernel = export_kernel(
        parse_workload(workload_text),
        candidate,
        placement.target,
        placement.resources,
        Path(folder),
        f"kernel-{slot}",
    )
    return {"kernel_hash": kernel.kernel_hash, "build_s": kernel.build_s, "kernel": kernel}


def compile_to(
    plan: NetworkPlan, placement: Placement, packed: Path, folder: Path
) -> CompiledNetwork:
    """Write a network's library, or what the device makes one of, and its weights."""
    executable, workspaces = compile_network(
        plan, placement.target, timed=has_stopwatch(placement.target)
    )
    path = linked(lambda: export_network(executable, placement.target, folder), folder)
    write_weights(folder, plan, packed)
    return CompiledNetwork(workspaces=workspaces, library_bytes=path.stat().st_size)


def connect(host: str, port: int, match: str, session_s: float) -> ServerFacts:
    """Open a session on a server, giving up an earlier one; what it says about itself."""
    disconnect()
    session = RemoteSession(host, port, match, session_s)
    _sessions.append((session, RemoteNetworks(session)))
    return in_session(RemoteSession.facts)()


def disconnect() -> None:
    """Give the device back."""
    _sessions.clear()


def measure(
    session: RemoteSession,
    kernel: ExportedKernel,
    workload_text: str,
    protocol: Protocol,
    seed: int,
    give_up_s: float,
) -> list[float]:
    """Time a kernel on the device."""
    timing = session.timing(kernel, parse_workload(workload_text), protocol, seed)
    return timing.samples(protocol, give_up_s)


def evaluate(
    session: RemoteSession,
    kernel: ExportedKernel,
    workload_text: str,
    candidate: Candidate,
    folder: str,
    count: int,
) -> npt.NDArray[np.generic]:
    """The kernel's result there on logical arrays, `0.npy`, `1.npy` … in a folder."""
    workload = parse_workload(workload_text)
    return session.evaluate(kernel, workload, candidate, logical_arrays(workload, folder, count))


def peaks(session: RemoteSession, target: Target, resources: Resources) -> dict[str, float]:
    """What the device reaches; the names are those of the database."""
    with scratch_folder() as folder:
        return session.peaks(target, resources, folder)


def copies(session: RemoteSession) -> list[Copied]:
    """Copies of tensors to the device and back: bytes, and seconds of both ways by this clock."""
    return timed_copies(session.cpu, perf_counter)


def fetch(session: RemoteSession, name: str, path: Path) -> None:
    """Get a file from the session's folder."""
    path.write_bytes(session.file(name))


def ask(session: RemoteSession, function: str, *arguments: str) -> str | None:
    """What a function of the server answers, None where it has none of that name."""
    try:
        found = session.function(function)
    except AttributeError:
        return None
    return str(found(*arguments))


def in_session(work: Callable[..., Any], of: int = 0) -> Callable[..., Any]:
    """A handler that gives `work` the session, or with `of` 1 its networks, before what a request
    holds; an error that takes the session along becomes `DeviceLost`."""

    def handler(*arguments: Any) -> Any:
        if not _sessions:
            raise DeviceLost("no session is open")
        held = _sessions[0]
        try:
            return work(held[of], *arguments)
        except Exception as error:
            if held[0].alive():
                raise
            disconnect()
            raise DeviceLost(last_line(error)) from error

    return handler


if __name__ == "__main__":
    serve(
        {
            "prepare": prepare,
            "build": build,
            "identify": identify,
            "features": features,
            "compile": compile_to,
            "connect": connect,
            "disconnect": disconnect,
            "use_threads": in_session(RemoteSession.use_threads),
            "measure": in_session(measure),
            "evaluate": in_session(evaluate),
            "peaks": in_session(peaks),
            "copies": in_session(copies),
            "send": in_session(RemoteSession.send),
            "fetch": in_session(fetch),
            "ask": in_session(ask),
            "load": in_session(RemoteNetworks.load, 1),
            "unload": in_session(RemoteNetworks.unload, 1),
            "run": in_session(RemoteNetworks.run, 1),
            "time": in_session(RemoteNetworks.time, 1),
            "repeat": in_session(RemoteNetworks.repeat, 1),
            "time calls": in_session(RemoteNetworks.time_calls, 1),
        }
    )
