"""Compiling whole networks here, running and timing them on a device behind a TVM RPC tracker.

One device of the key is held from the first network that is loaded until the end, by a process of
its own: what hangs or dies there ends that process's request, not ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.core.errors import NegativeVerdict, TargetError
from tilewright.core.processes import Child, ChildError, ChildTimeout, RemoteError
from tilewright.core.records import Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.remote import ServerFacts
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure import networks
from tilewright.measure.boards import WORKER, Board
from tilewright.measure.networks import Array, NetworkRunner, network_error, packed_weights
from tilewright.measure.peers.base import Peer
from tilewright.measure.remote import BUSY_WAIT_S
from tilewright.measure.remote_peers import BoardPeer
from tilewright.measure.resident import MemoryPeak
from tilewright.measure.tracker import Tracker

SESSION_S = 900.0
"""A server ends a session after this long. It is opened anew before that, with all that was loaded;
a network that hangs blocks its device no longer."""
_UNKNOWN_MEMORY = "a TVM RPC server does not tell how much memory it takes"
_SAID = {name: f"{name} network" for name in ("load", "unload", "run", "time", "repeat")}
"""How errors call requests about networks."""
_AGAIN = "What was measured is kept; start the server again, then run the same command."


class BoardNetworks(NetworkRunner):
    """Networks on one device of a tracker's key, by name. Use as a context manager."""

    def __init__(self, placement: Placement, tracker: Tracker, key: str) -> None:
        self.placement = placement
        self._compiler = Child(WORKER)
        self._board = Board(tracker, key, session_s=SESSION_S)
        self._facts: ServerFacts | None = None
        self._loaded: dict[str, tuple[Path, Sequence[str]]] = {}
        self._peers: list[BoardPeer] = []

    def __exit__(self, *_exception: object) -> None:
        self._compiler.stop()
        self._board.disconnect()
        self._board.stop()

    def launch(self) -> None:
        """Start the process that compiles, without waiting for it."""
        self._compiler.launch()

    def abort(self) -> None:
        self._compiler.abort()
        self._board.abort()

    def compile(
        self, plan: NetworkPlan, constants: Mapping[str, Array], folder: Path
    ) -> CompiledNetwork:
        """Write library and weights into `folder`; no device is needed. Where nothing here links
        for the device, an archive lies there until a device has loaded it."""
        with packed_weights(plan, constants, folder) as packed:
            message = ("compile", plan, self.placement, packed, folder)
            try:
                return self._compiler.request(message, networks.COMPILE_TIMEOUT_S)
            except RemoteError as error:
                raise network_error(error, "compile") from error
            except ChildError as error:
                raise NegativeVerdict(f"compiling the network failed: {error}") from error

    def load(self, name: str, folder: Path, order: Sequence[str]) -> None:
        super().load(name, folder, order)
        self._loaded[name] = (folder, order)

    def unload(self, name: str) -> None:
        if self._loaded.pop(name, None) is not None:
            super().unload(name)

    def memory_peak(
        self, folder: Path, order: Sequence[str], inputs: Sequence[Array], *, runs: int = 3
    ) -> MemoryPeak:
        """Nothing: no server tells."""
        return MemoryPeak(bytes=None, method="none", reason=_UNKNOWN_MEMORY)

    def peer(self, name: str) -> Peer:
        """A peer on the device, where its server offers any. Raises UsageError for a name that is
        not known."""
        made = BoardPeer(name, f"{name} {len(self._peers)}", self._ask)
        self._peers.append(made)
        return made

    def _ask(self, message: tuple[Any, ...], more_s: float = 0.0) -> Any:
        limit_s = networks.RUN_TIMEOUT_S + more_s
        if not self._board.lasts(limit_s):
            self._connect(limit_s)
        return self._request(message, limit_s)

    def _connect(self, limit_s: float) -> None:
        """Open a session, on any device of the key, and put there what was on the last one."""
        facts = self._board.connect_for(self.placement, self._facts, BUSY_WAIT_S)
        self._facts = self._facts or facts
        for name, (folder, order) in self._loaded.items():
            self._request(("load", name, folder, list(order)), limit_s)
        for peer in self._peers:
            peer.renew()

    def _request(self, message: tuple[Any, ...], limit_s: float) -> Any:
        instance, what = self._board.instance, _SAID.get(message[0], str(message[0]))
        try:
            return self._board.request(message, limit_s)
        except RemoteError as error:
            if error.kind == "RPCError":
                why = (error.message.strip().splitlines() or ["no reason given"])[-1]
                raise TargetError(f"the device {instance} failed at {what}: {why}") from error
            raise network_error(error, what) from error
        except ChildError as error:
            for peer in self._peers:
                peer.forget()  # nobody has to stop it, and who wants it starts it
            fault = f"was lost at {what}: {error}"
            if isinstance(error, ChildTimeout):
                fault = f"hangs: {what} gave no answer within {limit_s:g} s"
            raise TargetError(f"the device {instance} {fault}", hint=_AGAIN) from error
