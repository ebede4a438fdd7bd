"""Peers with the real engines on a small model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.core.errors import TargetError, UsageError
from tilewright.hardware.probe import allotted_cpus
from tilewright.measure.network_timing import time_in_turn
from tilewright.measure.peers.base import PEERS, EngineRefused, Peer, ProcessPeer, make_peer
from tilewright.measure.peers.engine import time_calls

RANDOM = np.random.default_rng(3)
A = RANDOM.standard_normal((64, 256), dtype=np.float32)
WEIGHT = RANDOM.standard_normal((256, 128), dtype=np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two outputs whose names differ from the nodes'."""
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "w"], ["product"], name="first"),
            helper.make_node("Relu", ["product"], ["positive"], name="second"),
        ],
        "small",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [64, 256])],
        [
            helper.make_tensor_value_info("positive", TensorProto.FLOAT, [64, 128]),
            helper.make_tensor_value_info("product", TensorProto.FLOAT, [64, 128]),
        ],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


@pytest.fixture(params=PEERS.names())
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    made = make_peer(request.param)
    reason = made.available()
    if reason is not None:
        pytest.skip(reason)
    yield made
    made.stop()


def test_runs_and_times(peer: Peer, model: Path) -> None:
    peer.start(model, 1, allotted_cpus(), "fp32")
    assert peer.precision == "fp32"
    outputs = peer.run({"a": A})
    expected = A @ WEIGHT
    np.testing.assert_allclose(outputs["product"], expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(outputs["positive"], np.maximum(expected, 0), rtol=1e-4, atol=1e-3)
    samples_s = peer.time({"a": A}, 4, 1)
    assert len(samples_s) == 4
    assert min(samples_s) > 0


def test_says_what_it_computes_in_by_default(peer: Peer, model: Path) -> None:
    peer.start(model, 1, allotted_cpus(), "default")
    assert peer.precision in ("fp32", "bf16", "fp16")


def test_lives_on_the_cpus_given_and_sleeps_between_requests(peer: Peer, model: Path) -> None:
    cpus = allotted_cpus()[:2]
    before = {process.pid for process in psutil.Process().children()}
    peer.start(model, len(cpus), cpus, "fp32")
    (engine,) = [child for child in psutil.Process().children() if child.pid not in before]
    assert set(engine.cpu_affinity() or ()) == set(cpus)
    peer.time({"a": A}, 200, 0)
    used = engine.cpu_times()
    time.sleep(0.3)
    later = engine.cpu_times()
    assert (later.user + later.system) - (used.user + used.system) <= 0.05
    peer.stop()
    assert not engine.is_running()


def test_a_broken_model_is_a_target_error(peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"this is no model")
    with pytest.raises(EngineRefused, match=peer.name):
        peer.start(path, 1, allotted_cpus(), "fp32")


def test_wrong_inputs_are_a_target_error(peer: Peer, model: Path) -> None:
    peer.start(model, 1, allotted_cpus(), "fp32")
    with pytest.raises(TargetError, match=peer.name):
        peer.run({"no such input": A})


def test_a_missing_engine_says_so(model: Path) -> None:
    missing = ProcessPeer(name="nothing", package="no_such_engine", module="no.such.module")
    assert "no_such_engine" in (missing.available() or "")
    with pytest.raises(TargetError, match="not installed"):
        missing.start(model, 1, (0,))
    with pytest.raises(TargetError, match="not been started"):
        missing.run({})


def test_unknown_names_get_close_matches() -> None:
    with pytest.raises(UsageError, match="onnxruntime"):
        make_peer("onnxruntme")


def test_turns_alternate_and_keep_the_order_of_samples() -> None:
    calls: list[str] = []

    def runner(name: str, samples: list[float]) -> list[float]:
        calls.append(name)
        return [sample + len(calls) for sample in samples]

    rounds_s = time_in_turn(
        {"a": lambda: runner("a", [0.1, 0.2]), "b": lambda: runner("b", [0.3])}, 3
    )
    assert calls == ["a", "b"] * 3
    assert rounds_s == {
        "a": [(1.1, 1.2), (3.1, 3.2), (5.1, 5.2)],
        "b": [(2.3,), (4.3,), (6.3,)],
    }


def test_samples_come_back_only_when_nothing_spins() -> None:
    spinning: list[threading.Thread] = []

    def spin() -> None:
        end_s = time.monotonic() + 0.3
        while time.monotonic() < end_s:
            pass

    def call() -> None:
        spinning.append(threading.Thread(target=spin))
        spinning[-1].start()

    assert len(time_calls(call, 2, 1)) == 2
    assert len(spinning) == 3
    assert not any(thread.is_alive() for thread in spinning)
