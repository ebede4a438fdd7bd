"""Which operators stay in single precision for the error, and what makes the noise on codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from helpers.networks.quantizable import images, saved, written
from tilewright.core.budget import parse_budget
from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import discard
from tilewright.core.noise import RoundingNoise
from tilewright.deploy.quantizing import OnCodes
from tilewright.hardware.device import local_placement
from tilewright.measure.checking import compare_runs
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions, loading
from tilewright.models.quantizing import Quantizer
from tilewright.search.levels import OptimizeRequest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("within")
    written(made, x=images(8))
    saved(made)
    return made


@pytest.fixture(scope="module")
def quantizer(folder: Path) -> Quantizer:
    options = ModelOptions(precision="int8", calibration=folder / "inputs.npz")
    return Quantizer(loading.load(str(folder / "images.onnx")), options)


@pytest.fixture(scope="module")
def noise(quantizer: Quantizer) -> RoundingNoise:
    return quantizer.noise(quantizer.quantized())


def seen_db(quantizer: Quantizer, kept: list[str]) -> float:
    made = quantizer.quantized(kept)
    outputs = quantizer.judged(made.path)
    expected = quantizer.judged(quantizer.model.onnx_path)
    return compare_runs(outputs, expected, quantizer.model.outputs).sqnr_db or 0.0


def test_causes_add_up_to_what_the_network_shows(
    quantizer: Quantizer, noise: RoundingNoise
) -> None:
    assert set(noise.calls) == {"h", "depthwise", "u", "e"}
    assert set(noise.tensors) == {"x", "h", "k", "u", "s", "m", "e"}  # g has the codes of h
    every = [(powers, 1.0) for powers in (*noise.tensors.values(), *noise.calls.values())]
    assert noise.sqnr_db(noise.total(every)) == pytest.approx(seen_db(quantizer, []), abs=3.0)


def test_a_cause_is_what_rounding_its_tensor_changes(
    quantizer: Quantizer, noise: RoundingNoise
) -> None:
    fitted = [each["x"] for each in quantizer.inputs.fitted]
    made = quantizer.quantized()
    graph = onnx.load(made.path).graph
    parameters = next(node.input[1] for node in graph.node if node.input[0] == "x")
    (value,) = (each for each in graph.initializer if each.name == parameters)
    scale = float(onnx.numpy_helper.to_array(value))
    session: Any = pytest.importorskip("onnxruntime").InferenceSession(
        str(quantizer.model.onnx_path), providers=["CPUExecutionProvider"]
    )
    off = [
        session.run(None, {"x": np.round(each / scale) * np.float32(scale)})[0]
        - session.run(None, {"x": each})[0]
        for each in fitted[:2]
    ]
    assert noise.tensors["x"][0] == pytest.approx(float(np.square(off).sum()), rel=0.05)


def asked(folder: Path, decibels: float, **named: Any) -> OptimizeRequest:
    options = ModelOptions(precision="int8", calibration=folder / "inputs.npz", **named)
    return OptimizeRequest(
        model=str(folder / "images.onnx"), options=options, budget=parse_budget(0), folder=folder,
        max_error=1.0, least_sqnr_db=decibels, seed=0,
    )  # fmt: skip


def prepared(request: OptimizeRequest) -> tuple[set[str], list[str]]:
    """The products that are on codes, and what is told."""
    told: list[str] = []
    placement = allowing(local_placement(1), request.options)
    network = OnCodes(request, placement, lambda event: told.append(str(event))).network
    graph = network.graph
    products = [n for n in graph.nodes if n.operator in ("conv2d", "dense")]
    return {n.name for n in products if graph.types[n.output].dtype == "int32"}, told


def test_as_few_operators_as_the_error_needs_stay_in_single_precision(
    folder: Path, quantizer: Quantizer
) -> None:
    whole = seen_db(quantizer, [])
    everything, told = prepared(asked(folder, whole - 1.0))
    assert everything == {"h", "depthwise", "u", "e"} and not told
    some, told = prepared(asked(folder, whole + 3.0))
    assert set() < some < everything
    assert "operators stay in float32 for the error" in told[-1]
    kept, _ = prepared(asked(folder, whole - 4.0, keep="float32:u"))
    assert kept == everything - {"u"}
    with pytest.raises(NegativeVerdict, match=r"off by .* dB, less than the 120 dB") as verdict:
        OnCodes(asked(folder, 120.0), local_placement(1), discard)
    assert "--max-error" in str(verdict.value.hint)
