"""What every peer must keep, as checks that another package can run on its own.

    from tilewright.testing.peers import PeerConformance

    class TestMyPeer(PeerConformance):
        maker = staticmethod(my_peer)

Where the engine is not installed, the checks are of how that is said, and the others are skipped.
The model has a convolution, a matrix product and two outputs; results are compared with numpy's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import SkipTest

import numpy as np
import psutil

from tilewright.core.errors import TargetError
from tilewright.hardware.probe import allotted_cpus
from tilewright.measure.peers.base import Peer, PeerMaker, Tensors

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "int8")
_RELATIVE, _ABSOLUTE = 1e-4, 1e-4
_LOOKS, _BETWEEN_LOOKS_S = 20, 0.02
"""An engine that is not asked anything sleeps in at least one of so many looks."""


def model_bytes() -> bytes:
    """An ONNX model: `image` through a convolution and ReLU to `features`, and on through a matrix
    product to `scores`."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    helpers: Any = helper
    weights = _weights()
    graph = helpers.make_graph(
        [
            helpers.make_node("Conv", ["image", "kernel"], ["sums"], pads=[1, 1, 1, 1]),
            helpers.make_node("Relu", ["sums"], ["features"]),
            helpers.make_node("Flatten", ["features"], ["flat"]),
            helpers.make_node("MatMul", ["flat", "matrix"], ["scores"]),
        ],
        "small",
        [helpers.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])],
        [
            helpers.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 5]),
            helpers.make_tensor_value_info("features", TensorProto.FLOAT, [1, 4, 8, 8]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helpers.make_opsetid("", 17)]
    model: onnx.ModelProto = helpers.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString()


def _weights() -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    rng = np.random.default_rng(5)
    shapes = {"kernel": (4, 3, 3, 3), "matrix": (256, 5)}
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


def image() -> Tensors:
    """Values for the model's input."""
    rng = np.random.default_rng(6)
    return {"image": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)}


def expected() -> Tensors:
    """The model's outputs for `image`, by numpy."""
    weights = _weights()
    padded = np.pad(image()["image"].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    features = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weights["kernel"]), 0)
    scores = features.reshape(1, -1) @ weights["matrix"]
    return {"features": features, "scores": scores}


@contextmanager
def _model(content: bytes | None = None) -> Generator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.onnx"
        path.write_bytes(model_bytes() if content is None else content)
        yield path


@contextmanager
def _started(maker: PeerMaker, precision: Any = "fp32") -> Generator[Peer]:
    """A peer with the model loaded; raises SkipTest where the engine is not there."""
    peer = maker()
    reason = peer.available()
    if reason is not None:
        raise SkipTest(reason)
    with _model() as path:
        try:
            peer.start(path, 1, allotted_cpus(), precision)
            yield peer
        finally:
            peer.stop()


def check_available(maker: PeerMaker) -> None:
    """It says that it can be used, or why not; then it refuses to start."""
    peer = maker()
    assert peer.name and isinstance(peer.name, str), "it has no name"
    assert peer.package and isinstance(peer.package, str), "it does not say which package it needs"
    reason = peer.available()
    assert reason is None or reason, "it does not say why it cannot be used"
    assert reason == maker().available(), "asked twice, it can be used once"
    if reason is not None:
        with _model() as path:
            _refuses(lambda: peer.start(path, 1, allotted_cpus(), "fp32"), "to start")


def check_numbers(maker: PeerMaker) -> None:
    """In fp32 it computes in fp32, and gives numpy's numbers by the names of the outputs."""
    with _started(maker) as peer:
        assert peer.precision == "fp32", f"asked for fp32, it computes in {peer.precision}"
        found = peer.run(image())
    for name, wanted in expected().items():
        assert name in found, f"the output {name!r} is missing"
        assert found[name].shape == wanted.shape, f"{name!r} has the shape {found[name].shape}"
        close = np.allclose(found[name], wanted, rtol=_RELATIVE, atol=_ABSOLUTE)
        assert close, f"{name!r} is off by {float(np.abs(found[name] - wanted).max()):.3g}"


def check_default_precision(maker: PeerMaker) -> None:
    """Left to itself, it says what it computes in."""
    with _started(maker, "default") as peer:
        assert peer.precision in PRECISIONS, f"the precision {peer.precision!r} is not known"
        assert set(expected()) <= set(peer.run(image()))


def check_times(maker: PeerMaker) -> None:
    """As many times as were asked for, all above 0, none longer than everything took."""
    with _started(maker) as peer:
        begin_s = time.monotonic()
        times_s = peer.time(image(), 7, 2)
        took_s = time.monotonic() - begin_s
    assert len(times_s) == 7, f"{len(times_s)} times where 7 were asked for"
    assert min(times_s) > 0, "a call took no time"
    assert sum(times_s) <= took_s, "the calls took longer than they did together"


def check_refuses_broken_models(maker: PeerMaker) -> None:
    """A file that is no model is refused as a TargetError, and the next one is taken."""
    peer = maker()
    if (reason := peer.available()) is not None:
        raise SkipTest(reason)
    try:
        with _model(b"this is no model") as path:
            _refuses(lambda: peer.start(path, 1, allotted_cpus(), "fp32"), "a broken model")
        with _model() as path:
            peer.start(path, 1, allotted_cpus(), "fp32")
            assert set(expected()) <= set(peer.run(image()))
    finally:
        peer.stop()


def check_refuses_wrong_inputs(maker: PeerMaker) -> None:
    """Inputs that the model does not have are refused as a TargetError."""
    with _started(maker) as peer:
        wrong = {"no such input": image()["image"]}
        _refuses(lambda: peer.run(wrong), "an input that the model does not have")


def check_stopping(maker: PeerMaker) -> None:
    """Stopping is harmless before the start and twice, and nothing runs after it."""
    peer = maker()
    peer.stop()
    with _started(lambda: peer):
        peer.stop()
        peer.stop()
        _refuses(lambda: peer.run(image()), "to run after it was stopped")


def check_sleeping(maker: PeerMaker) -> None:
    """Between requests its processes rest; when it stops they go, with those of an earlier
    start."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def engines() -> list[psutil.Process]:
        found = psutil.Process().children(recursive=True)
        return [child for child in found if child.pid not in before]

    with _started(maker) as peer, _model() as path:
        peer.start(path, 1, allotted_cpus(), "fp32")
        peer.time(image(), 50, 0)
        awake = _awake(engines())
        assert awake < _LOOKS, "its processes go on working while nobody asks"
    left = psutil.wait_procs(engines(), timeout=5.0)[1]
    assert not left, f"{len(left)} of its processes outlive it"


def _awake(processes: list[psutil.Process]) -> int:
    """In how many looks some thread wants to run; how fast the machine lets it does not count."""
    found = 0
    for _ in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S)
        found += any(state == "R" for process in processes for state in _states(process))
    return found


def _states(process: psutil.Process) -> list[str]:
    """The state of each thread, as Linux tells it: what stands behind the name in parentheses."""
    states: list[str] = []
    for path in Path(f"/proc/{process.pid}/task").glob("*/stat"):
        with suppress(OSError):
            states.append(path.read_text(encoding="utf-8").rpartition(")")[2].split()[0])
    return states


def _refuses(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except TargetError as error:
        assert error.message, f"it does not say why it refuses {what}"
        return
    raise AssertionError(f"it should refuse {what} with a TargetError, and does not")


CHECKS: tuple[Callable[[PeerMaker], None], ...] = (
    check_available,
    check_numbers,
    check_default_precision,
    check_times,
    check_refuses_broken_models,
    check_refuses_wrong_inputs,
    check_stopping,
    check_sleeping,
)


def check_peer(maker: PeerMaker) -> None:
    """All checks one after the other; raises AssertionError with what was not kept, SkipTest where
    the engine is not there."""
    for check in CHECKS:
        check(maker)


class PeerConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `maker`."""

    maker: PeerMaker

    def test_available(self) -> None:
        check_available(self.maker)

    def test_numbers(self) -> None:
        check_numbers(self.maker)

    def test_default_precision(self) -> None:
        check_default_precision(self.maker)

    def test_times(self) -> None:
        check_times(self.maker)

    def test_refuses_broken_models(self) -> None:
        check_refuses_broken_models(self.maker)

    def test_refuses_wrong_inputs(self) -> None:
        check_refuses_wrong_inputs(self.maker)

    def test_stopping(self) -> None:
        check_stopping(self.maker)

    def test_sleeping(self) -> None:
        check_sleeping(self.maker)
