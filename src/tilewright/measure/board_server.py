"""TVM's RPC server with the peers that are installed beside tilewright on a board.

    python -m tilewright.measure.board_server --host 10.0.0.7 --tracker 10.0.0.1:9190 --key board

It takes the options of `python -m tvm.exec.rpc_server` and serves the same; whoever reaches it can
also time ONNX Runtime and others there, by functions that take and give texts of JSON. Arrays and
models come as files in the session's folder, where they are put by what TVM's server offers by
itself. Engines run in processes of their own, as they do everywhere.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core import child, element_types, errors
from tilewright.hardware.probe import allotted_cpus
from tilewright.measure.peers.base import Peer, Tensors, make_peer

AVAILABLE, START, RUN, TIME, STOP = (
    f"tilewright.peers.{name}" for name in ("available", "start", "run", "time", "stop")
)
MODEL, INPUTS, OUTPUTS = "peer-model.onnx", "peer-inputs.npz", "peer-outputs.npz"
"""Files in the session's folder."""


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> dict[str, str]:
    """Write arrays by name, and their element types as JSON has them."""
    numbered = {str(number): array for number, array in enumerate(tensors.values())}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **numbered)
    return {name: str(array.dtype) for name, array in tensors.items()}


def read_tensors(path: Path, types: Mapping[str, str]) -> Tensors:
    """What `write_tensors` wrote, by the element types that it told."""
    with np.load(path, allow_pickle=False) as raw:
        return {
            name: raw[str(number)].view(element_types.element_type(dtype).numpy)
            for number, (name, dtype) in enumerate(types.items())
        }


class BoardPeers:
    """The peers of one session. What goes wrong is part of the answer: `error`, its kind in words,
    and `message`."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = tuple(cpus)
        self._peers: dict[str, Peer] = {}
        self._inputs: dict[str, Tensors] = {}

    def functions(self) -> dict[str, Callable[[str], str]]:
        """What the server offers, by name."""
        answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            AVAILABLE: self._available,
            START: self._start,
            RUN: self._run,
            TIME: self._time,
            STOP: self._stop,
        }
        return {name: _in_json(answer) for name, answer in answers.items()}

    def _available(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"reason": make_peer(asked["peer"]).available()}

    def _start(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Load the model that was sent, `threads` threads on the board's own CPUs."""
        self._stop(asked)
        peer = self._peers[asked["label"]] = make_peer(asked["peer"])
        peer.start(Path.cwd() / MODEL, int(asked["threads"]), self._cpus, asked["precision"])
        return {"precision": peer.precision}

    def _run(self, asked: dict[str, Any]) -> dict[str, Any]:
        peer, inputs = self._started(asked)
        return {"types": write_tensors(Path(OUTPUTS), peer.run(inputs))}

    def _time(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Seconds of each run; networks of this session sleep before the first."""
        peer, inputs = self._started(asked)
        child.wait_until_asleep()
        return {"seconds": peer.time(inputs, int(asked["repeats"]), int(asked["warmup"]))}

    def _stop(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["label"] in self._peers:
            self._peers.pop(asked["label"]).stop()
        return {}

    def _started(self, asked: dict[str, Any]) -> tuple[Peer, Tensors]:
        """A peer and its inputs: those that were sent for this request, else its last ones."""
        label = asked["label"]
        if label not in self._peers:
            raise errors.TargetError(f"{label} has not been started")
        if asked.get("types") is not None:
            self._inputs[label] = read_tensors(Path(INPUTS), asked["types"])
        return self._peers[label], self._inputs[label]


def _in_json(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[str], str]:
    """The same with texts of JSON; errors that people may see become part of the answer."""

    def answered(text: str) -> str:
        try:
            return json.dumps(answer(json.loads(text)))
        except (errors.TargetError, errors.UsageError) as error:
            return json.dumps({"error": type(error).__name__, "message": error.message})

    return answered


_OPTIONS: dict[str, dict[str, Any]] = {
    "--host": {"default": "0.0.0.0", "help": "address to bind to [default: every one]"},
    "--port": {"type": int, "default": 9090, "help": "first port to try"},
    "--port-end": {"type": int, "default": 9199, "help": "port to stop at"},
    "--tracker": {"required": True, "help": "HOST:PORT of the tracker"},
    "--key": {"required": True, "help": "the kind of device, as the tracker knows it"},
    "--custom-addr": {"help": "address to tell the tracker"},
    "--load-library": {"help": "further libraries to load, with : between them"},
    "--silent": {"action": "store_true", "help": "say errors only"},
}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tilewright.measure.board_server")
    for option, settings in _OPTIONS.items():
        parser.add_argument(option, **settings)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    options = _options(arguments)
    cpus = allotted_cpus()  # before a kernel of TVM's ties its thread to one
    from tilewright.compiler.remote import serve_board

    serve_board(vars(options), BoardPeers(cpus).functions())


if __name__ == "__main__":
    main()
