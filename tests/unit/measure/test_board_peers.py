"""Peers on a board: what is sent, what is answered, and what a session that ends costs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.core.errors import TargetError, UsageError
from tilewright.hardware.device import local_placement
from tilewright.measure import board_server, reference
from tilewright.measure.board_server import BoardPeers, read_tensors, write_tensors
from tilewright.measure.peers.base import EngineRefused
from tilewright.measure.remote_networks import BoardPeer

X = {"x": np.arange(3, dtype=np.float32)}


class Engine:
    """A peer that says what was done to it."""

    name, package, precision = "engine", "numpy", "fp32"
    done: list[str] = []

    def available(self) -> str | None:
        return None

    def start(self, model_path: Path, threads: int, cpus: Any, precision: str = "fp32") -> None:
        if model_path.read_bytes() == b"refused":
            raise EngineRefused("engine failed: it has no such operator")
        self.done.append(f"start {threads} on {len(cpus)} {precision}")
        self.precision = "bf16" if precision == "default" else "fp32"

    def run(self, inputs: Any) -> dict[str, np.ndarray]:
        return {"y": inputs["x"] + 1}

    def time(self, inputs: Any, repeats: int, warmup: int) -> list[float]:
        self.done.append(f"time {inputs['x'].tolist()}")
        return [1e-3] * repeats

    def stop(self) -> None:
        self.done.append("stop")


class Session:
    """What a process that holds a session does with a board of this process."""

    def __init__(self, *, stock: bool = False) -> None:
        self.sent: list[str] = []
        self.begin(stock=stock)

    def begin(self, *, stock: bool = False) -> None:
        """A new session: nothing of the last one is there."""
        self._functions: dict[str, Callable[[str], str]] = (
            {} if stock else BoardPeers((0, 1)).functions()
        )

    def __call__(self, message: tuple[Any, ...], _more_s: float = 0.0) -> Any:
        kind, *words = message
        if kind == "send":
            self.sent.append(words[1])
            shutil.copy(words[0], words[1])
        elif kind == "fetch":
            shutil.copy(words[0], words[1])
        else:
            function = self._functions.get(words[0])
            return None if function is None else function(words[1])
        return None


def test_files_between_machines_hold_numbers_only(tmp_path: Path) -> None:
    """An object would be a pickle, which runs code where it is read."""
    written = tmp_path / "a.npz"
    types = write_tensors(written, {"x": np.arange(3), "y": np.array([True])})
    found = read_tensors(written, types)
    assert found["x"].tolist() == [0, 1, 2] and found["y"].dtype == np.bool_
    with pytest.raises(ValueError, match="allow_pickle"):
        write_tensors(written, {"x": np.array([print], dtype=object)})
    np.savez(written, **{"0": np.array([print], dtype=object)})
    with pytest.raises(ValueError, match="allow_pickle"):
        read_tensors(written, {"x": "float32"})


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board_server, "make_peer", lambda _name: Engine())
    monkeypatch.setattr(Engine, "done", [])
    (tmp_path / "model.onnx").write_bytes(b"a model")
    return tmp_path / "model.onnx"


def test_tensors_travel_in_files(tmp_path: Path) -> None:
    sent = {"a/b": np.ones((2, 3), np.float32), "é": np.array([1.5], ml_dtypes.bfloat16)}
    types = write_tensors(tmp_path / "t.npz", sent)
    found = read_tensors(tmp_path / "t.npz", json.loads(json.dumps(types)))
    assert list(found) == list(sent)
    for name, array in sent.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def test_a_peer_there_is_started_timed_and_run(model: Path) -> None:
    session = Session()
    peer = BoardPeer("onnxruntime", "first", session)
    assert peer.available() is None
    peer.start(model, 2, (7, 8, 9), "default")
    assert peer.precision == "bf16"
    assert peer.time(X, 3, 1) == peer.time(X, 3, 1) == [1e-3] * 3
    assert session.sent == ["peer-model.onnx", "peer-inputs.npz"]
    np.testing.assert_array_equal(peer.run({"x": X["x"] * 2})["y"], [1, 3, 5])
    peer.stop()
    peer.stop()
    assert Engine.done == ["start 2 on 2 default", *["time [0.0, 1.0, 2.0]"] * 2, "stop"]


def test_a_session_that_ended_starts_it_again(model: Path) -> None:
    session = Session()
    peer = BoardPeer("onnxruntime", "first", session)
    with pytest.raises(TargetError, match="has not been started"):
        peer.time(X, 1, 1)
    peer.start(model, 1, (0,))
    peer.time(X, 1, 1)
    session.begin()
    peer.forget()
    assert peer.time(X, 2, 1) == [1e-3] * 2
    assert session.sent == ["peer-model.onnx", "peer-inputs.npz"] * 2


@pytest.mark.parametrize("request_number", range(8))
def test_a_session_that_is_renewed_between_two_requests_costs_only_time(
    model: Path, request_number: int
) -> None:
    """Whatever request it falls on, each of which needs what earlier ones left there."""
    session, asked = Session(), count()

    def ask(message: tuple[Any, ...], more_s: float = 0.0) -> Any:
        if next(asked) == request_number:
            session.begin()
            for name in ("peer-model.onnx", "peer-inputs.npz", "peer-outputs.npz"):
                Path(name).unlink(missing_ok=True)
            peer.renew()
        try:
            return session(message, more_s)
        except OSError as error:
            raise TargetError(f"the device failed at {message[0]}: {error}") from error

    peer = BoardPeer("onnxruntime", "first", ask)
    assert peer.available() is None
    peer.start(model, 1, (0,))
    assert peer.time(X, 2, 1) == [1e-3] * 2
    np.testing.assert_array_equal(peer.run({"x": X["x"] * 2})["y"], [1, 3, 5])
    peer.stop()


def test_errors_are_told_as_they_are_here(model: Path) -> None:
    model.write_bytes(b"refused")
    peer = BoardPeer("onnxruntime", "first", Session())
    with pytest.raises(EngineRefused, match="on the board, engine failed: it has no such"):
        peer.start(model, 1, (0,))
    with pytest.raises(UsageError):
        BoardPeer("onnxruntme", "first", Session())
    stock = BoardPeer("onnxruntime", "first", Session(stock=True))
    assert "tilewright.measure.board_server" in (stock.available() or "")
    with pytest.raises(TargetError, match="cannot be used"):
        stock.start(model, 1, (0,))


class Far:
    """Runs networks elsewhere, beside a peer."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def peer(self, name: str) -> BoardPeer:
        return BoardPeer(name, name, self._session)


@pytest.mark.parametrize("stock", [True, False])
def test_the_reference_computes_here_and_is_timed_there(model: Path, stock: bool) -> None:
    far: Any = Far(Session(stock=stock))
    own: Any = Engine()
    with ExitStack() as stack:
        found = reference.open_reference(stack, own, far, local_placement(1), model, [X])
        np.testing.assert_array_equal(found.expected[0]["y"], [1, 2, 3])
        assert (found.timed is None) == stock and bool(found.untimed) == stock
        assert Engine.done[1] == "stop", "it sleeps while others are timed"
    near: Any = object()
    with ExitStack() as stack:
        found = reference.open_reference(stack, own, near, local_placement(1), model, [X])
        assert found.timed is own and not found.untimed


def test_a_model_that_is_refused_there_alone_leaves_no_time(model: Path) -> None:
    far: Any = Far(Session())
    own: Any = Engine()
    with ExitStack() as stack:

        def start(*_arguments: object) -> None:
            model.write_bytes(b"refused")

        own.start = start
        found = reference.open_reference(stack, own, far, local_placement(1), model, [X])
    assert found.timed is None and "no such operator" in found.untimed


def test_the_server_takes_the_options_of_tvms(capsys: pytest.CaptureFixture[str]) -> None:
    options = board_server._options(["--tracker", "10.0.0.1:9190", "--key", "pi4", "--silent"])
    assert (options.host, options.port, options.port_end) == ("0.0.0.0", 9090, 9199)
    assert options.silent and options.key == "pi4" and options.custom_addr is None
    with pytest.raises(SystemExit):
        board_server._options(["--key", "pi4"])
    assert "--tracker" in capsys.readouterr().err
