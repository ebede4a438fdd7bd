"""The suite of peers: ours pass it, and it finds those that break a promise."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from unittest import SkipTest

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from helpers.networks.onnx_models import model_of
from helpers.plugins.documented import toys
from tilewright.core.errors import TargetError
from tilewright.measure.peers.base import PEERS, EngineRefused, ProcessPeer
from tilewright.testing import peers as suite
from tilewright.testing.peers import PeerConformance


class TestOnnxRuntime(PeerConformance):
    maker = staticmethod(PEERS.named("onnxruntime"))


@pytest.mark.parametrize("name", [name for name in PEERS.names() if name != "onnxruntime"])
def test_others_keep_every_promise_where_they_are(name: str) -> None:
    try:
        suite.check_peer(PEERS.named(name))
    except SkipTest as error:
        pytest.skip(str(error))


def test_the_engine_of_the_documentation_is_a_peer_in_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toys(tmp_path) as folder:
        monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        peer = ProcessPeer(name="slow", package="onnx", module="toys.onnx_python_engine")
        path = tmp_path / "m.onnx"
        onnx.save(model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2)}), path)
        with pytest.raises(EngineRefused, match="slow failed: ValueError: it computes in one"):
            peer.start(path, 2, (0, 1))
        peer.start(path, 1, (0,))
        try:
            x = np.array([[-1.0, 2.0]], np.float32)
            np.testing.assert_array_equal(peer.run({"x": x})["y"], [[0.0, 2.0]])
            assert len(peer.time({"x": x}, 3, 1)) == 3 and peer.precision == "fp32"
        finally:
            peer.stop()


class Slow:
    """ONNX's own reference, in this process."""

    name, package, precision = "slow", "onnx", "fp32"
    model = None

    def available(self) -> str | None:
        return None

    def start(self, model_path, threads, cpus, precision="fp32") -> None:
        try:
            self.model = ReferenceEvaluator(onnx.load(model_path))
        except Exception as error:
            raise EngineRefused(f"slow cannot read {model_path}: {error}") from error

    def run(self, inputs):
        if self.model is None:
            raise TargetError("slow was not started")
        if "image" not in inputs:
            raise TargetError("slow needs an image")
        outputs = self.model.run(None, dict(inputs))
        return dict(zip(self.model.output_names, outputs, strict=True))

    def time(self, inputs, repeats, warmup) -> list[float]:
        times = []
        for _ in range(warmup + repeats):
            begin = time.perf_counter()
            self.run(inputs)
            times.append(time.perf_counter() - begin)
        return times[warmup:]

    def stop(self) -> None:
        self.model = None


class Silent(Slow):
    def available(self):
        return ""


class Wrong(Slow):
    def run(self, inputs):
        return {name: array + np.float32(0.1) for name, array in super().run(inputs).items()}


class Secretive(Slow):
    precision = "some"


class CountsWarmUp(Slow):
    def time(self, inputs, repeats, warmup):
        return super().time(inputs, repeats + warmup, 0)


class Swallows(Slow):
    def start(self, model_path, threads, cpus, precision="fp32"):
        try:
            super().start(model_path, threads, cpus, precision)
        except TargetError:
            self.model = None


class Raw(Slow):
    """Lets the engine's own errors through."""

    def run(self, inputs):
        return {"scores": inputs["image"], "features": inputs["image"]}


class Tireless(Slow):
    def stop(self):
        pass


class Leaves(Slow):
    """Its process outlives it."""

    def start(self, *arguments):
        super().start(*arguments)
        self.child = subprocess.Popen(["sleep", "8"])


class Restless(Slow):
    """Its process never sleeps."""

    child = None

    def start(self, *arguments):
        super().start(*arguments)
        self.stop()
        super().start(*arguments)
        self.child = subprocess.Popen(["sh", "-c", "while :; do :; done"])

    def stop(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (suite.check_available, Silent),
        (suite.check_numbers, Wrong),
        (suite.check_default_precision, Secretive),
        (suite.check_times, CountsWarmUp),
        (suite.check_refuses_broken_models, Swallows),
        (suite.check_refuses_wrong_inputs, Raw),
        (suite.check_stopping, Tireless),
        (suite.check_sleeping, Restless),
    ],
)
def test_peers_that_break_a_promise_are_found(check, bad) -> None:
    check(Slow)
    with pytest.raises((AssertionError, KeyError)):
        check(bad)


def test_processes_that_are_left_are_found() -> None:
    with pytest.raises(AssertionError, match="outlive it"):
        suite.check_sleeping(Leaves)


def test_a_peer_that_is_not_there_must_not_start() -> None:
    class Absent(Slow):
        def available(self):
            return "it is not installed"

    with pytest.raises(AssertionError, match="should refuse to start"):
        suite.check_available(Absent)
    with pytest.raises(SkipTest, match="not installed"):
        suite.check_numbers(Absent)


def test_the_class_runs_every_check() -> None:
    methods = [name for name in dir(PeerConformance) if name.startswith("test_")]
    assert sorted(methods) == sorted(c.__name__.replace("check_", "test_") for c in suite.CHECKS)
