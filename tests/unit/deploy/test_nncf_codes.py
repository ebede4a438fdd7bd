"""A network that NNCF puts on codes is one like ONNX Runtime's; without NNCF it is refused."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from helpers.networks.quantizable import images, saved, written
from tilewright.cli.main import main
from tilewright.core.errors import TargetError, UsageError
from tilewright.measure.checking import compare_runs
from tilewright.models import ModelOptions, loading
from tilewright.models.quantizing import Quantizer

with_nncf = pytest.mark.skipif(find_spec("nncf") is None, reason="NNCF is not installed")


@pytest.fixture(scope="module")
def quantizer(tmp_path_factory: pytest.TempPathFactory) -> Quantizer:
    folder = tmp_path_factory.mktemp("nncf")
    given = written(folder, x=images(8))
    options = ModelOptions(precision="int8", calibration=given, calibrator="nncf")
    return Quantizer(loading.load(str(saved(folder))), options)


def test_without_nncf_the_calibrator_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)  # as if it were not installed
    path = str(saved(tmp_path))
    for precision in ("int8", "auto"):
        with pytest.raises(TargetError, match="needs the package nncf") as refused:
            loading.load(path, ModelOptions(precision=precision, calibrator="nncf"))
        assert "tilewright[nncf]" in str(refused.value.hint)
    assert main(["predict", path, "--precision", "int8", "--calibrator", "nncf"]) == 3
    assert "tilewright[nncf]" in capsys.readouterr().err


def test_a_calibrator_belongs_to_codes() -> None:
    for precision in ("float32", "float16", "int8-weights"):
        with pytest.raises(UsageError, match="nncf puts networks on codes"):
            ModelOptions(precision=precision, calibrator="nncf")
    with pytest.raises(UsageError, match="calibrator is 'tflite'"):
        ModelOptions(precision="int8", calibrator="tflite")  # pyright: ignore[reportArgumentType]


@with_nncf
def test_what_nncf_makes_has_products_on_codes_with_zero_points_of_0(quantizer: Quantizer) -> None:
    made = quantizer.quantized()
    graph = onnx.load(made.path).graph
    values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    makers = {node.output[0]: node for node in graph.node}
    products = {node.name: node for node in graph.node if node.op_type in ("Conv", "Gemm")}
    assert set(products) == {"h", "depthwise", "u", "e"}
    for node in products.values():
        scale = values[makers[node.input[1]].input[1]]
        assert makers[node.input[1]].op_type == "DequantizeLinear" and scale.size in (10, 16)
    zeros = [values[n.input[2]] for n in graph.node if n.op_type == "DequantizeLinear"]
    assert zeros and not any(zero.any() for zero in zeros)
    kinds = {kind.dtype for kind in loading.with_codes(quantizer.model, made).graph.types.values()}
    assert {"int8", "uint8", "int32"} <= kinds


@with_nncf
def test_noise_of_what_nncf_makes_adds_up_to_what_the_network_shows(quantizer: Quantizer) -> None:
    made, outputs = quantizer.quantized(), quantizer.model.outputs
    expected = quantizer.judged(quantizer.model.onnx_path)
    seen_db = compare_runs(quantizer.judged(made.path), expected, outputs).sqnr_db
    noise = quantizer.noise(made)
    names = {name for node in quantizer.nodes for name in (*node.inputs, node.output)}
    assert set(noise.calls) == {"h", "depthwise", "u", "e"} and set(noise.tensors) <= names
    every = [(powers, 1.0) for powers in (*noise.tensors.values(), *noise.calls.values())]
    assert noise.sqnr_db(noise.total(every)) == pytest.approx(seen_db, abs=3.0)
    assert seen_db is not None and seen_db > 30.0


@with_nncf
def test_what_nncf_is_told_to_keep_stays_in_single_precision(quantizer: Quantizer) -> None:
    made = quantizer.quantized(["u"])
    readers = {node.name: node for node in onnx.load(made.path).graph.node}
    assert readers["u"].input[1] == "c" and readers["e"].input[1] != "d"
    graph = loading.with_codes(quantizer.model, quantizer.quantized(["depthwise"])).graph
    products = [node for node in graph.nodes if node.operator in ("conv2d", "dense")]
    read = [graph.types[node.inputs[1]].dtype for node in products]
    assert read == ["int8", "float32", "int8", "int8"]  # the first has a bias
