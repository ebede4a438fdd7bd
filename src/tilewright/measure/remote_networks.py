"""Compiling whole networks here, running and timing them on a device behind a TVM RPC tracker, and
peers beside them, where its server has tilewright (`measure.board_server`).

One device of the key is held from the first network that is loaded until the end, by a process of
its own: what hangs or dies there ends that process's request, not ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tilewright.core import records, scratch
from tilewright.core.errors import NegativeVerdict, TargetError, TilewrightError
from tilewright.core.processes import Child, ChildError, ChildTimeout, RemoteError
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.remote import ServerFacts
from tilewright.kernels.planned_memory import CompiledNetwork
from tilewright.measure import board_server, boards, networks, remote, resident
from tilewright.measure.networks import Array, NetworkRunner, network_error, packed_weights
from tilewright.measure.peers.base import (
    RUN_TIMEOUT_S,
    START_TIMEOUT_S,
    EngineRefused,
    Peer,
    PrecisionRequest,
    Tensors,
    make_peer,
)

SESSION_S = 900.0
"""A server ends a session after this long. It is opened anew before that, with all that was loaded;
a network that hangs blocks its device no longer."""
_UNKNOWN_MEMORY = "a TVM RPC server does not tell how much memory it takes"
_SAID = {name: f"{name} network" for name in ("load", "unload", "run", "time", "repeat")}
"""How errors call requests about networks."""
_AGAIN = "What was measured is kept; start the server again, then run the same command."


class BoardNetworks(NetworkRunner):
    """Networks on one device of a tracker's key, by name. Use as a context manager."""

    def __init__(self, placement: records.Placement, tracker: boards.Tracker, key: str) -> None:
        self.placement = placement
        self._compiler = Child(boards.WORKER)
        self._board = boards.Board(tracker, key, session_s=SESSION_S)
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
    ) -> resident.MemoryPeak:
        """Nothing: no server tells."""
        return resident.MemoryPeak(bytes=None, method="none", reason=_UNKNOWN_MEMORY)

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
        facts = self._board.connect_for(self.placement, self._facts, remote.BUSY_WAIT_S)
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
            fault = (
                f"hangs: {what} gave no answer within {limit_s:g} s"
                if isinstance(error, ChildTimeout)
                else f"was lost at {what}: {error}"
            )
            raise TargetError(f"the device {instance} {fault}", hint=_AGAIN) from error


_Result = TypeVar("_Result")

_START_MORE_S = START_TIMEOUT_S - RUN_TIMEOUT_S


class Ask(Protocol):
    """Asks the process that holds the device's session, for `more_s` longer than usual."""

    def __call__(self, message: tuple[Any, ...], more_s: float = 0.0, /) -> Any: ...


NO_PEERS = (
    "its server offers no peers; where tilewright is installed on the device, `python -m "
    "tilewright.measure.board_server` in place of `python -m tvm.exec.rpc_server` offers them"
)


class BoardPeer:
    """A peer on the device of a session. When the session is another, so is the peer's process: it
    is started there again."""

    def __init__(self, peer: str, label: str, ask: Ask) -> None:
        known = make_peer(peer)
        self.name, self.package, self.precision = known.name, known.package, "fp32"
        self._peer = peer
        self._label = label
        self._request = ask
        self._model: Path | None = None
        self._terms: dict[str, Any] = {}
        self._sent: Tensors = {}
        self._there = False
        self._renewals = 0

    def available(self) -> str | None:
        """None when the peer can be used there, else the reason why not."""
        answer = self._request(("ask", board_server.AVAILABLE, json.dumps({"peer": self._peer})))
        return NO_PEERS if answer is None else json.loads(answer)["reason"]

    def start(
        self,
        model_path: Path,
        threads: int,
        cpus: Sequence[int],
        precision: PrecisionRequest = "fp32",
    ) -> None:
        """Load a model there, on the board's first CPUs; raises `TargetError` when it cannot."""
        self._model = Path(model_path)
        self._terms = {"peer": self._peer, "threads": threads, "precision": precision}
        self._in_one_session(self._start)

    def run(self, inputs: Mapping[str, Any]) -> Tensors:
        """The outputs by their ONNX names."""

        def fetched() -> Tensors:
            answer = self._with(inputs, board_server.RUN, {})
            with scratch.scratch_folder() as folder:
                self._request(("fetch", board_server.OUTPUTS, folder / board_server.OUTPUTS))
                return board_server.read_tensors(folder / board_server.OUTPUTS, answer["types"])

        return self._in_one_session(fetched)

    def time(self, inputs: Mapping[str, Any], repeats: int, warmup: int) -> list[float]:
        """Seconds of each of `repeats` calls there, in order, after `warmup` untimed ones."""
        asked = {"repeats": repeats, "warmup": warmup}
        return self._in_one_session(lambda: self._with(inputs, board_server.TIME, asked)["seconds"])

    def stop(self) -> None:
        """End the engine's process; it ends with the session, too."""
        if self._there:
            self._there = False
            self._ask(board_server.STOP, {})

    def forget(self) -> None:
        """The session ended, and all that was in it."""
        self._there, self._sent = False, {}

    def renew(self) -> None:
        """Another session began in place of one that was about to end."""
        self.forget()
        self._renewals += 1

    def _in_one_session(self, work: Callable[[], _Result]) -> _Result:
        """What several requests come to; where the session was renewed between two of them, what
        went before is not there any more, and they are made once more."""
        renewals = self._renewals
        try:
            return work()
        except TilewrightError:
            if self._renewals == renewals:
                raise
            return work()

    def _start(self) -> None:
        if self._model is None:
            raise TargetError(f"{self.name} has not been started")
        self._request(("send", self._model, board_server.MODEL))
        self.precision = self._ask(board_server.START, self._terms)["precision"]
        self._there, self._sent = True, {}

    def _with(self, inputs: Mapping[str, Any], function: str, asked: dict[str, Any]) -> Any:
        """Ask for something with inputs, which are sent when they are others than before."""
        if not self._there:
            self._start()
        same = (np.array_equal(array, self._sent[name]) for name, array in inputs.items())
        if inputs.keys() != self._sent.keys() or not all(same):
            with scratch.scratch_folder() as folder:
                types = board_server.write_tensors(folder / board_server.INPUTS, inputs)
                self._request(("send", folder / board_server.INPUTS, board_server.INPUTS))
            asked = {**asked, "types": types}
            self._sent = {name: np.array(array) for name, array in inputs.items()}
        return self._ask(function, asked)

    def _ask(self, function: str, asked: dict[str, Any]) -> Any:
        more_s = _START_MORE_S if function == board_server.START else 0.0
        text = self._request(("ask", function, json.dumps({**asked, "label": self._label})), more_s)
        if text is None:
            raise TargetError(f"{self.name} cannot be used: {NO_PEERS}")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            refused = answer["error"] == EngineRefused.__name__
            raise (EngineRefused if refused else TargetError)(f"on the board, {answer['message']}")
        return answer
