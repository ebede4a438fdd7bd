"""Peers on a GPU: the engines' own code in their processes, with packages that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes.cuda_bindings import CudaBindings
from tilewright.core.errors import TargetError
from tilewright.hardware.gpus import gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.measure import diagnosis
from tilewright.measure.cuda_networks import environment_of
from tilewright.measure.peers import base
from tilewright.measure.peers.base import EngineRefused, ProcessPeer, make_peer, mode_of
from tilewright.testing import peers as suite

PACKAGES = Path(__file__).parents[2] / "helpers" / "fakes" / "gpu_packages"
H100 = gpu_target(parse_gpu("cuda -model=H100"))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages that are made up come before all others."""
    monkeypatch.syspath_prepend(PACKAGES)


def on_gpu(name: str) -> ProcessPeer:
    peer = make_peer(name)
    assert isinstance(peer, ProcessPeer)
    peer.place("cuda", environment_of(H100, library=CudaBindings()))
    return peer


@contextmanager
def started(name: str, precision: Any = "fp32") -> Iterator[ProcessPeer]:
    peer = on_gpu(name)
    with suite._model() as path:
        try:
            peer.start(path, 1, (0,), precision)
            yield peer
        finally:
            peer.stop()


def off_by(peer: ProcessPeer) -> float:
    """Relative to the largest value of each output; the second run reads other inputs."""
    peer.run({"image": np.zeros_like(suite.image()["image"])})
    found, wanted = peer.run(suite.image()), suite.expected()
    return max(float(np.abs(found[n] - wanted[n]).max() / np.abs(wanted[n]).max()) for n in wanted)


def test_eager_torch_replays_a_graph_of_the_better_layout() -> None:
    with started("torch") as peer:
        assert (peer.precision, mode_of(peer)) == ("fp32", "channels first, CUDA graph")
        assert off_by(peer) < 1e-6
        samples_s = peer.time(suite.image(), 5, 2)
        assert len(samples_s) == 5 and max(samples_s) < 1e-5, "by the clock of the GPU"
        with pytest.raises(EngineRefused, match="not \\(1, 3, 8, 8\\)"):
            peer.run({"image": np.zeros((1, 3, 8, 9), np.float32)})


def test_what_cannot_be_captured_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the layout decides: the made-up cuDNN likes channels last."""
    monkeypatch.setenv("FAKE_TORCH", "no graphs")
    with started("torch") as peer:
        assert mode_of(peer) == "channels last, no CUDA graph"
        assert off_by(peer) < 1e-6


def test_by_default_torch_computes_in_tf32_and_it_shows() -> None:
    with started("torch", "default") as peer:
        assert peer.precision == "tf32"
        assert 1e-5 < off_by(peer) < 1e-2


def test_the_compiler_of_torch_is_captured_too() -> None:
    with started("torch_compiled") as peer:
        assert (peer.precision, mode_of(peer)) == ("fp32", "CUDA graph")
        assert off_by(peer) < 1e-6


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no cuda", "NoGpu: PyTorch 2.99 is built without CUDA"),
        ("no gpu", "NoGpu: PyTorch 2.99 finds no GPU that it can use"),
        ("no memory", "OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_torch_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, fault: str, said: str) -> None:
    monkeypatch.setenv("FAKE_TORCH", fault)
    with pytest.raises(EngineRefused, match=f"torch eager failed: {said}"), started("torch"):
        pass


def test_a_peer_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TORCH", "hangs")
    monkeypatch.setattr(base, "START_TIMEOUT_S", 3.0)
    said = "torch eager failed: no answer within 3 s"
    with pytest.raises(TargetError, match=said) as error, started("torch"):
        pass
    assert not isinstance(error.value, EngineRefused)


def test_an_engine_for_cpus_is_not_started() -> None:
    peer = on_gpu("openvino")
    assert peer.available() == "it computes on processors of the kind cpu, not cuda"
    with pytest.raises(TargetError, match="openvino cannot be used: it computes on"):
        peer.start(Path("any.onnx"), 1, (0,))


def test_one_of_several_cards_is_named() -> None:
    """The one that networks run on; alone, it need not be."""
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(H100, library=CudaBindings())
    several = environment_of(H100, library=CudaBindings(cards=2))
    assert several["CUDA_VISIBLE_DEVICES"] == "GPU-00000000-0000-0000-0000-000000000000"
    with pytest.raises(TargetError, match="no T4 is in this machine"):
        environment_of(gpu_target(parse_gpu("cuda -model=T4")), library=CudaBindings())


@pytest.mark.parametrize(
    ("name", "fault", "mode"),
    [
        ("onnxruntime", "", "channels first, CUDA graph"),
        ("onnxruntime", "FAKE_ONNXRUNTIME=no layouts", "channels first, no CUDA graph"),
        ("tensorrt", "", "CUDA graph"),
        ("tensorrt", "FAKE_CUDA=no graphs", "no CUDA graph"),
    ],
)
def test_engines_compute_in_a_stream_on_memory_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: str, mode: str
) -> None:
    monkeypatch.setenv(*(fault or "FAKE=").split("="))
    with started(name) as peer:
        assert (peer.precision, mode_of(peer)) == ("fp32", mode)
        assert off_by(peer) < 1e-6
        assert peer.time(suite.image(), 5, 2) == pytest.approx([2.5e-3] * 5), "by its events"


def test_jax_counts_many_runs_as_one_sample() -> None:
    with started("jax") as peer:
        assert (peer.precision, mode_of(peer)) == ("fp32", "")
        assert off_by(peer) < 1e-6
        samples_s = peer.time(suite.image(), 3, 1)
        assert len(samples_s) == 3 and min(samples_s) > 0


@pytest.mark.parametrize("name", ["onnxruntime", "tensorrt", "jax"])
def test_by_default_they_compute_in_tf32(name: str) -> None:
    with started(name, "default") as peer:
        assert peer.precision == "tf32"
        assert 1e-5 < off_by(peer) < 1e-2


@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [
        ("onnxruntime", "FAKE_ONNXRUNTIME=no provider", "NoGpu: ONNX Runtime 9.9 is built without"),
        ("onnxruntime", "FAKE_ONNXRUNTIME=no libraries", "NoGpu: ONNX Runtime cannot load its"),
        ("jax", "FAKE_JAX=no gpu", "NoGpu: JAX 0.99 finds no GPU that it can use"),
        ("tensorrt", "FAKE_TENSORRT=refuses", "Refused: error 0: no importer for Frobnicate"),
        ("tensorrt", "FAKE_CUDA=no memory", ".*memory"),
        ("tensorrt", "FAKE_TENSORRT=no context", ".*out of the GPU's memory"),
    ],
)
def test_what_they_refuse_is_said(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: str, said: str
) -> None:
    monkeypatch.setenv(*fault.split("="))
    with pytest.raises(TargetError, match=f"failed: {said}"), started(name):
        pass


def test_doctor_does_not_advise_to_install_what_is_there() -> None:
    found = diagnosis._peer("tensorrt")
    assert (found.status, found.advice) == ("ok", "")
    assert found.detail == "it computes on processors of the kind cuda, not cpu"
