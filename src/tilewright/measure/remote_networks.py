"""Compiling whole networks here, running and timing them on a device behind a TVM RPC tracker.

One device of the key is held from the first network that is loaded until the end, by a process of
its own: what hangs or dies there ends that process's request, not ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tilewright.core.errors import NegativeVerdict, TargetError
from tilewright.core.processes import Child, ChildError, ChildTimeout, RemoteError
from tilewright.core.records import Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.remote import ServerFacts
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure import networks
from tilewright.measure.boards import WORKER, Board, BoardLost
from tilewright.measure.networks import Array, packed_weights, told
from tilewright.measure.peers.base import Peer
from tilewright.measure.remote import BUSY_WAIT_S
from tilewright.measure.remote_peers import BoardPeer
from tilewright.measure.resident import MemoryPeak
from tilewright.measure.tracker import Tracker

SESSION_S = 900.0
"""A server ends a session after this long. It is opened anew before that, with all that was loaded;
a network that hangs blocks its device no longer."""
_UNKNOWN_MEMORY = "a TVM RPC server does not tell how much memory it takes"
_AGAIN = "What was measured is kept; start the server again, then run the same command."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A network that is on the device, or comes there with the next session."""

    folder: Path
    order: tuple[str, ...]


class BoardNetworks:
    """Networks on one device of a tracker's key, by name. Use as a context manager."""

    def __init__(self, placement: Placement, tracker: Tracker, key: str) -> None:
        self.placement = placement
        self._compiler = Child(WORKER)
        self._board = Board(tracker, key, session_s=SESSION_S)
        self._facts: ServerFacts | None = None
        self._loaded: dict[str, _Loaded] = {}
        self._peers: list[BoardPeer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._compiler.stop()
        self._board.disconnect()
        self._board.stop()

    def launch(self) -> None:
        """Start the process that compiles, without waiting for it."""
        self._compiler.launch()

    def abort(self) -> None:
        """Kill the processes from another thread; what they are at fails."""
        self._compiler.abort()
        self._board.abort()

    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> CompiledNetwork:
        """Write library and weights into `folder`; no device is needed. Where nothing here links
        for the device, an archive lies there until a device has loaded it."""
        with packed_weights(plan, constants, folder) as packed:
            message = ("compile network", plan, self.placement, str(packed), str(folder))
            try:
                return self._compiler.request(message, networks.COMPILE_TIMEOUT_S)
            except RemoteError as error:
                raise told(error, "compile") from error
            except ChildError as error:
                raise NegativeVerdict(f"compiling the network failed: {error}") from error

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        """Put a compiled network on the device."""
        loaded = _Loaded(folder=folder, order=tuple(order))
        self._ask(_loading(name, loaded))
        self._loaded[name] = loaded

    def unload(self, name: str) -> None:
        """Forget a network."""
        if self._loaded.pop(name, None) is not None:
            self._ask(("unload network", name))

    def run(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of one run."""
        return self._ask(("run network", name, list(inputs)))

    def time(self, name: str, inputs: Sequence[Array], *, repeats: int, warmup: int) -> list[float]:
        """Seconds of each run, by the device's clock."""
        return self._ask(("time network", name, list(inputs), repeats, warmup))

    def repeat(self, name: str, inputs: Sequence[Array], seconds: float) -> int:
        """Run again and again for at least so many seconds; returns how often."""
        return self._ask(("repeat network", name, list(inputs), seconds), seconds)

    def memory_peak(
        self, folder: Path, order: Sequence[str], inputs: Sequence[Array], *, runs: int = 3
    ) -> MemoryPeak:
        """Nothing: no server tells."""
        return MemoryPeak(bytes=None, method="none", reason=_UNKNOWN_MEMORY)

    def time_calls(
        self, name: str, inputs: Sequence[Array], *, repeats: int
    ) -> list[tuple[str, float]]:
        """Symbol and median seconds of every call in its place in the network, in order; empty
        where the device's clock cannot be read from within a network."""
        return self._ask(("time calls", name, list(inputs), repeats))

    def peer(self, name: str) -> Peer:
        """A peer on the device, where its server offers any. Raises UsageError for a name that is
        not known."""
        made = BoardPeer(name, f"{name} {len(self._peers)}", self._ask)
        self._peers.append(made)
        return made

    def _ask(self, message: tuple[Any, ...], more_s: float = 0.0) -> Any:
        """What the device answers to a request that takes as long as any, and `more_s`."""
        limit_s = networks.RUN_TIMEOUT_S + more_s
        if not self._board.lasts(limit_s):
            self._connect(limit_s)
        return self._asked(message, limit_s)

    def _connect(self, limit_s: float) -> None:
        """Open a session, on any device of the key, and put there what was on the last one."""
        facts = self._board.connect_for(self.placement, self._facts, BUSY_WAIT_S)
        self._facts = self._facts or facts
        for name, loaded in self._loaded.items():
            self._asked(_loading(name, loaded), limit_s)
        for peer in self._peers:
            peer.renew()

    def _forget_peers(self) -> None:
        """They ended with the session: nobody has to stop them, and who wants one starts it."""
        for peer in self._peers:
            peer.forget()

    def _asked(self, message: tuple[Any, ...], limit_s: float) -> Any:
        instance = self._board.instance
        try:
            return self._board.request(message, limit_s)
        except RemoteError as error:
            if error.kind == "RPCError":
                why = (error.message.strip().splitlines() or ["no reason given"])[-1]
                raise TargetError(f"the device {instance} failed at {message[0]}: {why}") from error
            raise told(error, str(message[0])) from error
        except ChildTimeout as error:
            self._forget_peers()
            raise TargetError(
                f"the device {instance} hangs: {message[0]} gave no answer within {limit_s:g} s",
                hint=_AGAIN,
            ) from error
        except (BoardLost, ChildError) as error:
            self._forget_peers()
            raise TargetError(
                f"the device {instance} was lost at {message[0]}: {error}", hint=_AGAIN
            ) from error


def _loading(name: str, loaded: _Loaded) -> tuple[Any, ...]:
    return ("load network", name, str(loaded.folder), list(loaded.order))
