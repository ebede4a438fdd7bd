"""OpenVINO's engine, with a stand-in for the package, which need not be installed.

The stand-in adds 1 to its input, in memory of its own that the next call overwrites.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

MODULE = "tilewright.measure.peers.openvino_engine"


class Tensor:
    """Takes arrays in C order; shares their memory where that is asked for."""

    def __init__(self, array: Any, shared_memory: bool = False) -> None:
        assert array.flags.c_contiguous
        self.data = array if shared_memory else array.copy()


class Request:
    def __init__(self) -> None:
        self.inputs: dict[str, Tensor] = {}
        self.result = np.zeros((2, 3), np.float32)
        self.calls = 0

    def set_tensor(self, name: str, tensor: Tensor) -> None:
        self.inputs[name] = tensor

    def infer(self) -> None:
        self.calls += 1
        self.result[:] = self.inputs["x"].data + 1

    def get_output_tensor(self, index: int) -> Any:
        return SimpleNamespace(data=self.result if index == 0 else -self.result)


class Compiled:
    """A model with two outputs, of which the first has two names."""

    outputs = (SimpleNamespace(names={"y", "same"}), SimpleNamespace(names={"z"}))

    def __init__(self, precision: object) -> None:
        self.precision, self.request = precision, Request()

    def create_infer_request(self) -> Request:
        return self.request

    def get_property(self, name: str) -> object:
        return {"INFERENCE_PRECISION_HINT": self.precision}[name]


class OpenVINO(ModuleType):
    """The package; `precision` is what a plug-in says that it computes in."""

    def __init__(self) -> None:
        super().__init__("openvino")
        self.Tensor, self.Core = Tensor, lambda: self
        self.precision: object = "f32"
        self.asked: list[tuple[Any, ...]] = []

    def compile_model(self, *asked: Any) -> Compiled:
        self.asked.append(asked)
        self.compiled = Compiled(self.precision)
        return self.compiled


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> OpenVINO:
    package = OpenVINO()
    monkeypatch.setitem(sys.modules, "openvino", package)
    return package


@pytest.fixture
def engine(package: OpenVINO, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield import_module(MODULE).OpenVino()
    sys.modules.pop(MODULE, None)


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        ("f32", "fp32"),
        (SimpleNamespace(get_type_name=lambda: "bf16"), "bf16"),
        ("f16", "fp16"),
        ("dynamic", "dynamic"),
    ],
)
def test_it_says_what_it_computes_in(
    package: OpenVINO, engine: Any, said: object, precision: str
) -> None:
    """The plug-in's word for it, a text or a type, is told in ours."""
    package.precision = said
    assert engine.load("a.onnx", 2, "default") == precision


def test_a_model_is_compiled_for_latency_in_the_precision_asked_for(
    package: OpenVINO, engine: Any
) -> None:
    engine.load("a.onnx", 2, "fp32")
    engine.load("a.onnx", 1, "default")
    latency = {"PERFORMANCE_HINT": "LATENCY"}
    single = {"INFERENCE_PRECISION_HINT": "f32"}
    assert package.asked == [
        ("a.onnx", "CPU", {**latency, "INFERENCE_NUM_THREADS": 2, **single}),
        ("a.onnx", "CPU", {**latency, "INFERENCE_NUM_THREADS": 1}),
    ]


def test_inputs_are_taken_once_and_kept(package: OpenVINO, engine: Any) -> None:
    """Calls that are timed compute with what was bound, whatever its order in memory, and whatever
    becomes of it."""
    engine.load("a.onnx", 1, "default")
    x = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    call = engine.bind({"x": x})
    bound = package.compiled.request.inputs["x"]
    x[:] = -5
    call()
    found = engine.outputs(call())
    np.testing.assert_array_equal(found["y"], [[1, 2, 3], [4, 5, 6]])
    assert package.compiled.request.inputs["x"] is bound and package.compiled.request.calls == 2
    row = np.zeros((2, 3), np.float32)
    call = engine.bind({"x": row})
    row[:] = 9
    np.testing.assert_array_equal(engine.outputs(call())["y"], np.ones((2, 3)))


def test_outputs_are_copies_under_each_of_their_names(engine: Any) -> None:
    engine.load("a.onnx", 1, "default")
    first = engine.run({"x": np.zeros((2, 3), np.float32)})
    second = engine.run({"x": np.ones((2, 3), np.float32)})
    assert set(first) == {"y", "same", "z"}
    for name, sign in (("y", 1), ("same", 1), ("z", -1)):
        assert np.unique(first[name]) == sign and np.unique(second[name]) == 2 * sign


def test_every_call_is_timed(package: OpenVINO, engine: Any) -> None:
    engine.load("a.onnx", 1, "default")
    samples_s = engine.time({"x": np.zeros((2, 3), np.float32)}, 4, 2)
    assert len(samples_s) == 4 and all(seconds > 0 for seconds in samples_s)
    assert package.compiled.request.calls == 6
