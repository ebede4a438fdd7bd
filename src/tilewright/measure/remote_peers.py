"""Peers on a remote device: a server that has tilewright runs them there, in their own processes.

`measure.board_server` is the other side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tilewright.core.errors import TargetError, TilewrightError
from tilewright.core.scratch import scratch_folder
from tilewright.measure.board_server import (
    AVAILABLE,
    INPUTS,
    MODEL,
    OUTPUTS,
    RUN,
    START,
    STOP,
    TIME,
    read_tensors,
    write_tensors,
)
from tilewright.measure.peers.base import (
    RUN_TIMEOUT_S,
    START_TIMEOUT_S,
    EngineRefused,
    PrecisionRequest,
    Tensors,
)
from tilewright.measure.peers.known import make_peer

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
        answer = self._request(("ask", AVAILABLE, json.dumps({"peer": self._peer})))
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
            answer = self._with(inputs, RUN, {})
            with scratch_folder() as folder:
                self._request(("fetch", OUTPUTS, folder / OUTPUTS))
                return read_tensors(folder / OUTPUTS, answer["types"])

        return self._in_one_session(fetched)

    def time(self, inputs: Mapping[str, Any], repeats: int, warmup: int) -> list[float]:
        """Seconds of each of `repeats` calls there, in order, after `warmup` untimed ones."""
        asked = {"repeats": repeats, "warmup": warmup}
        return self._in_one_session(lambda: self._with(inputs, TIME, asked)["seconds"])

    def stop(self) -> None:
        """End the engine's process; it ends with the session, too."""
        if self._there:
            self._there = False
            self._ask(STOP, {})

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
        self._request(("send", self._model, MODEL))
        self.precision = self._ask(START, self._terms)["precision"]
        self._there, self._sent = True, {}

    def _with(self, inputs: Mapping[str, Any], function: str, asked: dict[str, Any]) -> Any:
        """Ask for something with inputs, which are sent when they are others than before."""
        if not self._there:
            self._start()
        same = (np.array_equal(array, self._sent[name]) for name, array in inputs.items())
        if inputs.keys() != self._sent.keys() or not all(same):
            with scratch_folder() as folder:
                types = write_tensors(folder / INPUTS, inputs)
                self._request(("send", folder / INPUTS, INPUTS))
            asked = {**asked, "types": types}
            self._sent = {name: np.array(array) for name, array in inputs.items()}
        return self._ask(function, asked)

    def _ask(self, function: str, asked: dict[str, Any]) -> Any:
        more_s = _START_MORE_S if function == START else 0.0
        text = self._request(("ask", function, json.dumps({**asked, "label": self._label})), more_s)
        if text is None:
            raise TargetError(f"{self.name} cannot be used: {NO_PEERS}")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            refused = answer["error"] == EngineRefused.__name__
            raise (EngineRefused if refused else TargetError)(f"on the board, {answer['message']}")
        return answer
