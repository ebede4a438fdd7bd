"""Processes that hold networks, or parts of them, and compute them: on cores here, on a GPU here,
or on a device elsewhere in whose session they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from tilewright.compiler.cuda.nvidia import environment_of
from tilewright.core.errors import TargetError, first_line
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.graph.network import Array
from tilewright.hardware.remote import ServerFacts, remote_place
from tilewright.measure.boards import Board, Tracker
from tilewright.measure.remote_networks import SESSION_S
from tilewright.serving.batches import ToLoad, run_message
from tilewright.serving.slots import SharedSlots
from tilewright.serving.staying import Copied

_REMOTE_WORKER = "tilewright.serving.remote_worker"
GPU_WORKER = "tilewright.serving.gpu_worker"
_FREE_S = 2.0
"""How long a device may be somebody else's."""


class Post(Protocol):
    """A process with networks or parts of them, on `cores` of its device. Its methods raise
    ChildError where it is gone afterwards, RemoteError for what a network refuses, TargetError
    where a device elsewhere cannot be had."""

    @property
    def cores(self) -> tuple[int, ...]: ...

    @property
    def copies(self) -> tuple[Copied, ...]:
        """What the last run copied between this machine's memory and the device's, as far as that
        is timed."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        ...

    def open(self, loads: Iterable[ToLoad], limit_s: float) -> None:
        """Start the process anew, with these."""
        ...

    def load(self, load: ToLoad, limit_s: float) -> None:
        """Load another one."""
        ...

    def run(
        self,
        key: str,
        slots: Sequence[int],
        limit_s: float,
        size: int = 1,
        orders: Sequence[int] = (0,),
    ) -> dict[int, Array]:
        """Compute what was loaded as `key` in these slots, in a batch of a size; what has no place
        there is returned, by its number. `orders` are that of the request, which no other one has,
        and those of all others on their way."""
        ...

    def abort(self) -> None:
        """Give up from another thread; what it is at fails."""
        ...

    def stop(self) -> None:
        """End the process."""
        ...


class LocalPost:
    """A process on cores of this machine, with a thread on each."""

    copies: tuple[Copied, ...] = ()

    def __init__(self, worker: str, cpus: tuple[int, ...], slots: SharedSlots) -> None:
        self.cores, self._slots = cpus, slots
        self._where: Any = cpus
        self._child = Child(worker, cpus=cpus, inherited=(slots.descriptor,))

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def open(self, loads: Iterable[ToLoad], limit_s: float) -> None:
        self._child.stop()
        slots = self._slots
        self._child.request(("prepare", slots.descriptor, *slots.shape, self._where), limit_s)
        for load in loads:
            self.load(load, limit_s)

    def load(self, load: ToLoad, limit_s: float) -> None:
        self._child.request_again(load.message, limit_s)

    def run(
        self,
        key: str,
        slots: Sequence[int],
        limit_s: float,
        size: int = 1,
        orders: Sequence[int] = (0,),
    ) -> dict[int, Array]:
        return self._child.request_again(run_message(key, size, slots), limit_s)

    def abort(self) -> None:
        self._child.abort()

    def stop(self) -> None:
        self._child.stop()


class GpuPost(LocalPost):
    """A process that has a GPU of this machine, and sees no other. It computes requests one by one,
    each kernel on all of the GPU."""

    def __init__(self, placement: Placement, slots: SharedSlots) -> None:
        super().__init__(GPU_WORKER, placement.binding.cpus, slots)
        self.cores, self._where = (0,), placement.target
        self._child.environment |= environment_of(placement)

    def run(
        self,
        key: str,
        slots: Sequence[int],
        limit_s: float,
        size: int = 1,
        orders: Sequence[int] = (0,),
    ) -> dict[int, Array]:
        self.copies = self._child.request_again(("run", key, *slots, tuple(orders)), limit_s)
        return {}


class RemotePost:
    """A process with the session of a device behind a tracker. The session is opened anew before
    the server of the device ends it. It computes requests one by one."""

    copies: tuple[Copied, ...] = ()

    def __init__(self, placement: Placement, slots: SharedSlots) -> None:
        key, host, port = remote_place(placement.device)
        self._placement, self._slots = placement, slots
        self.cores = tuple(range(placement.resources.threads))
        self._board = Board(
            Tracker(host, port),
            key,
            session_s=SESSION_S,
            worker=_REMOTE_WORKER,
            inherited=(slots.descriptor,),
        )
        self._facts: ServerFacts | None = None
        self._loads: list[ToLoad] = []

    @property
    def pid(self) -> int | None:
        return self._board.pid

    def open(self, loads: Iterable[ToLoad], limit_s: float) -> None:
        facts = self._board.connect_for(self._placement, self._facts, _FREE_S)
        self._facts = self._facts or facts
        self._board.request(("prepare", self._slots.descriptor, *self._slots.shape), limit_s)
        self._loads = []
        for load in loads:
            self.load(load, limit_s)

    def load(self, load: ToLoad, limit_s: float) -> None:
        self._board.request(load.message, limit_s)
        self._loads.append(load)

    def run(
        self,
        key: str,
        slots: Sequence[int],
        limit_s: float,
        size: int = 1,
        orders: Sequence[int] = (0,),
    ) -> dict[int, Array]:
        if not self._board.lasts(limit_s):
            self._open_anew(limit_s)
        return self._board.request(run_message(key, size, slots), limit_s)

    def _open_anew(self, limit_s: float) -> None:
        """Raises TargetError whatever fails: nothing was computed, and no request is at fault."""
        try:
            self.open(list(self._loads), limit_s)
        except (ChildError, RemoteError) as error:
            raise TargetError(f"the device cannot be had again: {first_line(error)}") from error

    def abort(self) -> None:
        self._board.abort()

    def stop(self) -> None:
        self._board.disconnect()
        self._board.stop()
