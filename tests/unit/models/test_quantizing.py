"""Float32 models put on codes: which nodes are, which stay, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from helpers.networks.quantizable import TEXT, images, model, saved, written
from tilewright.core.errors import ModelError, UsageError
from tilewright.graph.evaluate import run_graph
from tilewright.measure.checking import compare_runs
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import OnnxReference
from tilewright.models.quantizing import Quantizer, nodes_on_codes

CODES = ModelOptions(precision="int8")


def test_products_and_what_lies_between_them_are_on_codes() -> None:
    assert nodes_on_codes(onnx.parser.parse_model(TEXT).graph) == []  # weights are not constant
    graph = model().graph
    every = ["h", "g", "depthwise", "l", "u", "s", "p", "m", "f", "e"]  # all but Tanh
    assert nodes_on_codes(graph) == every
    assert nodes_on_codes(graph, {"u"}) == ["h", "g", "depthwise", "l", "e"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("float"))


def test_a_network_on_codes_has_the_float_one_as_its_reference(path: Path) -> None:
    made = loading.load(str(path), CODES)
    plain = loading.load(str(path))
    assert made.quantized is not None and made.onnx_path == plain.onnx_path
    assert made.inputs == plain.inputs and made.outputs == plain.outputs
    kinds = {kind.dtype for kind in made.graph.types.values()}
    assert {"uint8", "int32"} <= kinds
    assert "inputs that are drawn" in made.remark
    again = loading.load(str(path), CODES)
    assert again.quantized is not None
    assert again.quantized.path.read_bytes() == made.quantized.path.read_bytes()


def test_what_is_kept_stays_in_single_precision(path: Path) -> None:
    options = ModelOptions(precision="int8", keep=["float32:depthwise", "float32:e"])
    made = loading.load(str(path), options).quantized
    assert made is not None
    readers = {node.output[0]: node for node in onnx.load(made.path).graph.node}
    weights = {tensor.name for tensor in onnx.load(made.path).graph.initializer}
    assert {readers[name].input[1] for name in ("k", "e")} == {"b", "d"} <= weights


def test_scales_are_those_of_the_inputs_that_are_given(path: Path, tmp_path: Path) -> None:
    def input_scale(factor: float) -> float:
        given = written(tmp_path, x=images(6) * np.float32(factor))
        options = ModelOptions(precision="int8", calibration=given)
        made = loading.load(str(path), options).quantized
        assert made is not None
        graph = onnx.load(made.path).graph
        (node,) = (node for node in graph.node if node.input[0] == "x")
        values = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        return float(values[node.input[1]])

    assert input_scale(8.0) == pytest.approx(8.0 * input_scale(1.0))


@pytest.mark.parametrize(
    ("kind", "told"),
    [("codes", "on codes already"), ("half", "nothing of 'model' can be put on codes")],
)
def test_networks_that_cannot_be_quantized_are_told(tmp_path: Path, kind: str, told: str) -> None:
    texts = {
        "codes": """<ir_version: 8, opset_import: ["" : 17]>
            g (float[1, 4] x) => (float[1, 4] y) <float s = {0.1}, uint8 z = {0}>
            { q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }""",
        "half": """<ir_version: 8, opset_import: ["" : 17]>
            g (float16[1, 4] x) => (float16[1, 4] y) { y = Relu(x) }""",
    }
    onnx.save(onnx.parser.parse_model(texts[kind]), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=told):
        loading.load(str(tmp_path / "model.onnx"), CODES)


def test_names_that_are_not_there_are_told(path: Path) -> None:
    with pytest.raises(UsageError, match="no node or tensor 'depthwide'") as told:
        loading.load(str(path), ModelOptions(precision="int8", keep="float32:depthwide"))
    assert "depthwise" in str(told.value.hint)
    with pytest.raises(UsageError, match="cannot be kept"):
        ModelOptions(precision="int8", keep="bfloat16:k")
    with pytest.raises(UsageError, match="belong to a choice of types"):
        ModelOptions(calibration="inputs.npz")


def test_a_kept_product_between_codes_keeps_its_weights(tmp_path: Path) -> None:
    """One scale for all weights of `k`, as ONNX Runtime rounds them there, leaves zeros: those that
    read a channel without values are large."""
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        chain (float[1, 8, 6, 6] x) => (float[1, 8, 6, 6] y)
        <float[8, 8, 1, 1] a, float[8, 8, 1, 1] b, float[8] bias, float[8, 8, 1, 1] c> {
          h = Conv (x, a)
          k = Conv (h, b, bias)
          y = Conv (k, c)
        }""")
    for node in made.graph.node:
        node.name = f"conv_{node.output[0]}"
    random = np.random.default_rng(3)
    weights = {name: random.standard_normal((8, 8, 1, 1)).astype(np.float32) for name in "abc"}
    weights["a"][0], weights["b"][:, 0] = 0.0, 1000.0
    weights["bias"] = random.standard_normal(8).astype(np.float32)
    for name, values in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(made, tmp_path / "chain.onnx")
    given = written(tmp_path, x=random.standard_normal((8, 8, 6, 6)).astype(np.float32))
    options = ModelOptions(precision="int8", keep="float32:conv_k", calibration=given)
    plain = loading.load(str(tmp_path / "chain.onnx"))
    quantizer = Quantizer(plain, options)
    file = quantizer.quantized()
    graph = loading.with_codes(plain, file).graph
    convolutions = [node for node in graph.nodes if node.operator == "conv2d"]
    kinds = [[graph.types[name].dtype for name in node.inputs] for node in convolutions]
    assert [kind[1] for kind in kinds] == ["int8", "float32", "int8"]
    assert kinds[1][0] == "float32"
    np.testing.assert_array_equal(graph.constants[convolutions[1].inputs[1]], weights["b"])
    expected = quantizer.judged(plain.onnx_path)
    ours = [[run_graph(graph, each)["y"]] for each in quantizer.inputs.judged]
    for found in (quantizer.judged(file.path), ours):
        seen_db = compare_runs(found, expected, plain.outputs).sqnr_db
        assert seen_db is not None and seen_db > 25.0


def test_products_whose_biases_are_not_on_codes_are_on_codes(path: Path, tmp_path: Path) -> None:
    """NNCF writes biases as they are."""
    plain, made = loading.load(str(path)), loading.load(str(path), CODES).quantized
    assert made is not None
    file, (bias,) = onnx.load(made.path), [t for t in model().graph.initializer if t.name == "bias"]
    (first,) = (node for node in file.graph.node if node.name == "h")
    first.input[2] = "plain"
    bias.name = "plain"
    file.graph.initializer.append(bias)
    onnx.save(file, tmp_path / "codes.onnx")
    graph = loading.with_codes(plain, OnnxReference(path=tmp_path / "codes.onnx")).graph
    products = [node for node in graph.nodes if node.operator in ("conv2d", "dense")]
    assert [graph.types[node.inputs[1]].dtype for node in products] == ["int8"] * 4
