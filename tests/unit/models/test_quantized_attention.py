"""Which attention on codes is recognised, and that it is what its parts are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from helpers.networks.graph_builder import run_fused
from helpers.networks.quantized_encoder import TEXT, quantized
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.tasks import fused_network
from tilewright.models.loading import load_model

HIDDEN = ", ".join(["0"] * 13 + ["-3"] * 4)
MASKED = TEXT.replace("t = Mul(s, half)", "u = Mul(s, half)  t = Add(u, m)").replace(
    "float half = {0.5},", f"float half = {{0.5}}, float[1, 1, 1, 17] m = {{{HIDDEN}}},"
)
DIVIDED = TEXT.replace("Mul(s, half)", "Div(s, half)").replace("{0.5}", "{2.8284271}")
SIGNED = {"activation_type": QuantType.QInt8}
SYMMETRIC = {**SIGNED, "extra_options": {"ActivationSymmetric": True}}
PRODUCTS = {"op_types_to_quantize": ["MatMul"]}
INPUTS_OF_PRODUCTS = {
    **PRODUCTS,
    "extra_options": {"OpTypesToExcludeOutputQuantization": ["MatMul"]},
}


def networks(folder: Path, text: str, options: dict[str, Any]) -> tuple[FusedNetwork, FusedNetwork]:
    """With attention as a whole where it is recognised, and in parts."""
    graph = load_model(onnx.load(quantized(folder, text, **options)), "encoder").graph
    return fused_network(graph, attention_on_codes=True), fused_network(graph)


def operators(network: FusedNetwork) -> list[str]:
    return [step.operator for call in network.calls for step in call.workload.steps]


@pytest.mark.parametrize(
    ("text", "options", "codings"),
    [
        (TEXT, {}, 2),
        (DIVIDED, SIGNED, 2),
        (MASKED, SYMMETRIC, 3),
        (MASKED, PRODUCTS, 2),
    ],
)
def test_attention_that_is_recognised_is_what_its_parts_are(
    tmp_path: Path, text: str, options: dict[str, Any], codings: int
) -> None:
    """A product that leaves every code what it was is no rounding of its own; transpositions
    vanish; results differ by a code at the most."""
    whole, parts = networks(tmp_path, text, options)
    found = operators(whole)
    assert found.count("quantized_attention") == 1
    assert not {"batch_matmul", "softmax", "transpose"} & {*found}
    (rows,) = (v for name, v in whole.graph.constants.items() if name.endswith(".coding"))
    assert rows.shape == (codings, 4)
    x = np.random.default_rng(5).standard_normal((1, 17, 32), dtype=np.float32)
    (name,) = parts.graph.outputs
    result, wanted = (run_fused(each, {"x": x})[name] for each in (whole, parts))
    code = np.diff(np.unique(wanted)).min() if not options.get("op_types_to_quantize") else 0.1
    assert np.abs(result - wanted).max() <= 1.01 * code
    assert len(np.unique(wanted)) > 50


@pytest.mark.parametrize("options", [INPUTS_OF_PRODUCTS, {"quant_format": QuantFormat.QOperator}])
def test_other_forms_stay_parts(tmp_path: Path, options: dict[str, Any]) -> None:
    """Products whose sums are not rounded to codes, and softmax as an operator on codes."""
    whole, parts = networks(tmp_path, TEXT, options)
    assert operators(whole) == operators(parts)


@pytest.mark.parametrize(("times", "merged"), [(1.5, 2 / 3), (2.0, 0.0)])
def test_what_scales_codes_is_one_factor_only_where_each_code_becomes_the_same(
    tmp_path: Path, times: float, merged: float
) -> None:
    """Half of an odd code is rounded the other way by two products than by one."""
    model = onnx.load(quantized(tmp_path))
    for constant in model.graph.initializer:
        if constant.name == "t_scale":
            scale = onnx.numpy_helper.to_array(constant) * np.float32(times)
            constant.CopyFrom(onnx.numpy_helper.from_array(scale, "t_scale"))
    graph = load_model(model, "encoder").graph
    whole = fused_network(graph, attention_on_codes=True)
    rows = [v for name, v in whole.graph.constants.items() if name.endswith(".coding")]
    assert len(rows) == bool(merged)
    for array in rows:
        np.testing.assert_allclose(array[1, :2], (merged, 1.0), rtol=1e-6)
