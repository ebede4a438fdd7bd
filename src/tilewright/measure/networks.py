"""Compiling, running and timing whole networks in a process of their own."""

from __future__ import annotations

import errno
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilewright.core import processes, records
from tilewright.core.errors import (
    InputError,
    InternalError,
    ModelError,
    NegativeVerdict,
    OutputError,
    TargetError,
    TilewrightError,
)
from tilewright.core.output_files import attempting
from tilewright.core.scratch import PrivateFolder
from tilewright.core.timings import Burst
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels import planned_memory, plans
from tilewright.measure import base, resident
from tilewright.measure.beside import Pause, noticing_hangs

WORKER = "tilewright.measure.network_worker"
LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""What TVM looks for, in its order."""
COMPILE_TIMEOUT_S = 1800.0
RUN_TIMEOUT_S = 300.0

Array = npt.NDArray[np.generic]


_CUT_SHORT = "Write incomplete"
"""What TVM says when a file takes fewer bytes than it was given: the disk is full."""

_ROOM = (
    "Make room there, or choose another place: --out for what ships, TMPDIR for what is only timed."
)


class NetworkRunner(ABC):
    """What compiles, runs and times whole networks by name. Use as a context manager.

    What is wanted of a loaded network is asked of `_ask`; who knows it otherwise has methods of its
    own for it.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:  # noqa: B027 - optional
        """Let all networks go."""

    def launch(self) -> None:  # noqa: B027 - optional
        """Begin to get ready, without waiting for it; otherwise the first request does."""

    def abort(self) -> None:  # noqa: B027 - optional
        """Give up from another thread; what it is at fails."""

    @abstractmethod
    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> planned_memory.CompiledNetwork:
        """Write library and weights into `folder`."""

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        """Load a compiled network; `order` are the names of its constants."""
        self._ask(("load", name, folder, list(order)))

    def unload(self, name: str) -> None:
        """Forget a network."""
        self._ask(("unload", name))

    def run(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of one run."""
        return self._ask(("run", name, list(inputs)))

    def time(self, name: str, inputs: Sequence[Array], *, repeats: int, warmup: int) -> list[float]:
        """Seconds of each run."""
        return self._ask(("time", name, list(inputs), repeats, warmup))

    def repeat(self, name: str, inputs: Sequence[Array], seconds: float) -> int:
        """Run again and again for at least so many seconds; returns how often."""
        return self._ask(("repeat", name, list(inputs), seconds), seconds)

    def keep_running(
        self, name: str, inputs: Sequence[Array], files: tuple[Path, Path], most_s: float
    ) -> list[Burst]:
        """Run again and again while the first file is there, `most_s` seconds at most; the second
        one is written after the first run. Every run since."""
        return self._ask(("keep running", name, list(inputs), *map(str, files)), most_s)

    def memory_peak(
        self, folder: Path, order: Sequence[str], inputs: Sequence[Array], *, runs: int = 3
    ) -> resident.MemoryPeak:
        """The memory that loading and running a compiled network takes, beyond what the process
        held before. Ask one that did nothing yet: what it freed earlier would be used again.
        """
        return self._ask(("memory peak", folder, list(order), list(inputs), runs))

    def time_calls(
        self, name: str, inputs: Sequence[Array], *, repeats: int
    ) -> list[tuple[str, float]]:
        """Symbol and median seconds of every call in its place in the network, in order; empty
        where the device's clock cannot be read from within a network."""
        return self._ask(("time calls", name, list(inputs), repeats))

    @abstractmethod
    def _ask(self, message: tuple[Any, ...], more_s: float = 0.0) -> Any:
        """The answer to a request that takes as long as any, and `more_s`."""


_TOLD: Mapping[str, type[TilewrightError]] = {
    "InputError": InputError,
    "TargetError": TargetError,
    "DriverError": TargetError,
}
"""Errors of the process that are told as they are there."""


def network_error(error: processes.RemoteError, what: str) -> TilewrightError:
    """What an error in the process of a network means for people; `what` failed there."""
    told = _TOLD.get(error.kind)
    if told is not None:
        message, _, hint = error.message.partition("\n")
        return told(message, hint=hint or None)
    if error.kind in ("OSError", "PermissionError") or _CUT_SHORT in error.message:
        short = _CUT_SHORT in error.message
        reason = os.strerror(errno.ENOSPC) if short else error.message
        return OutputError(f"cannot write the compiled network: {reason}", hint=_ROOM)
    if error.kind == "DamagedArtifact":
        damage, _, hint = error.message.partition("\n")
        return ModelError(damage, hint=hint)
    if error.kind == "LinkError":
        return TargetError(
            f"the C++ compiler does not link the compiled network: {error.message}",
            hint="The environment's CXX, else CC, names it; without them it is "
            f"the first of {', '.join(LINKERS)}.",
        )
    return InternalError(f"{what} failed: {error}\n{error.trace}")


class NetworkWorker(base.Worker, NetworkRunner):
    """A child process that holds compiled networks by name. Use as a context manager.

    `module` is what it runs; it has the placement's CPUs where networks run `here`, on them.
    """

    _pause: Pause = staticmethod(Event.wait)

    def __init__(
        self, placement: records.Placement, module: str = WORKER, *, here: bool = True
    ) -> None:
        super().__init__(module, placement, here=here)
        self.placement = placement
        self._began_s = dict[str, float]()

    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> planned_memory.CompiledNetwork:
        """Write library and weights into `folder`.

        Raises TargetError when no C++ compiler is there to link the library.
        """
        if not any(shutil.which(name) for name in LINKERS):
            raise TargetError(
                f"no C++ compiler on PATH ({', '.join(LINKERS)}); it links the compiled network",
                hint="Debian and Ubuntu: apt-get install g++",
            )
        with packed_weights(plan, constants, folder) as packed:
            return self._ask(
                ("compile", plan, self.placement, packed, folder), COMPILE_TIMEOUT_S - RUN_TIMEOUT_S
            )

    def keep_running(
        self, name: str, inputs: Sequence[Array], files: tuple[Path, Path], most_s: float
    ) -> list[Burst]:
        """See `NetworkRunner.keep_running`. Raises NegativeVerdict where no run ends any more, half
        a minute later or more (`noticing_hangs`), also where none ends of a network that has run
        before."""
        known_s = self._began_s.get(name)
        with noticing_hangs(files[1], self.abort, known_s, self._pause) as watched:
            try:
                found = super().keep_running(name, inputs, files, most_s)
            except NegativeVerdict as error:
                if watched.hangs:
                    told = f"the {name} hangs: none of its runs ends any more"
                    raise NegativeVerdict(told) from error
                raise
        if watched.began_s is not None:
            self._began_s[name] = max(watched.began_s, known_s or 0.0)
        return found

    def _ask(self, message: tuple[Any, ...], more_s: float = 0.0) -> Any:
        try:
            return self.request(message, RUN_TIMEOUT_S + more_s)
        except processes.RemoteError as error:
            raise network_error(error, message[0]) from error
        except processes.ChildError as error:
            raise NegativeVerdict(
                f"the network's process failed at {message[0]}: {error}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCompile:
    """A network to be compiled into a folder, with the values of its graph's constants."""

    plan: NetworkPlan
    constants: Mapping[str, Array]
    folder: Path


def compile_all(workers: Sequence[NetworkRunner], networks: Sequence[ToCompile]) -> None:
    """Compile networks side by side, one per worker at a time.

    Raises what the first failure raises; the others are given up then.
    """
    waiting = iter(list(networks))

    def work(worker: NetworkRunner) -> None:
        for network in waiting:
            worker.compile(network.plan, network.constants, network.folder)

    for worker in workers:
        worker.launch()
    with ThreadPoolExecutor(len(workers)) as threads:
        running = [threads.submit(work, worker) for worker in workers]
        try:
            for done in as_completed(running):
                done.result()
        except BaseException:
            list(waiting)  # nobody gets another one
            for worker in workers:
                worker.abort()
            raise


@contextmanager
def packed_weights(
    plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
) -> Generator[Path]:
    """A temporary folder beside the artifact with every packed constant as `.npy`."""
    with ExitStack() as stack:
        with attempting(f"write the compiled network to {folder}", _ROOM):
            scratch = stack.enter_context(PrivateFolder(folder, ".packing-"))
            for stored in plan.constants:
                np.save(scratch / f"{stored.name}.npy", plans.packed_constant(stored, constants))
        yield scratch
