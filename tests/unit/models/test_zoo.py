"""The zoo's graphs against published figures, and the small networks through ONNX Runtime."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
import tomllib
from importlib import resources

import numpy as np
import onnx
import onnxruntime
import pytest

from helpers.networks.zoo_outlines import zoo_outline
from tilewright.graph.inputs import random_image
from tilewright.measure.telling import untold
from tilewright.models import zoo
from tilewright.models.zoo._builder import Convolution, GraphBuilder, ssd_anchors
from tilewright.models.zoo._description import append_network, parse_sections, zoo_sections

PUBLISHED = {  # parameters, multiply-adds at batch 1
    "resnet18": (11_689_512, 1.814e9),
    "resnet50": (25_557_032, 4.089e9),
    # quantized: a folded batch norm is one bias, and scales and zero points do not count
    "resnet18_int8": (11_689_512 - 4_800, 1.814e9),
    "resnet50_int8": (25_557_032 - 26_560, 4.089e9),
    "vgg19_bn": (143_678_248, 19.632e9),
    "inception_v3": (27_161_264 - 3_326_696, 5.713e9),  # torchvision's less its auxiliary head
    "googlenet": (6_624_904, 1.498e9),
    "densenet201": (20_013_928, 4.291e9),
    "ssd_resnet50_512": (23_526_912 + 7_411_712 + 5_530_350, None),  # backbone, extras, heads
    "mobilenet_v2": (3_504_872, 0.301e9),
    "squeezenet1_1": (1_235_496, 0.349e9),
    "nasnet_mobile": (5_326_716 - 36_738, 0.564e9),  # Keras' total less running statistics
    "mlp": (784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10, 784 * 512 + 512 * 256 + 256 * 10),
    "lstm": (650 * 10_000 + 4 * (4 * 650 * 651) + 651 * 10_000, None),
    "bert_base": (109_482_240, 11.25e9),
    "gpt2_small": (124_439_808, None),
    "vit_b16": (86_567_656, 17.56e9),
}
SMALL = ("resnet18", "resnet18_int8", "squeezenet1_1", "mobilenet_v2", "mlp", "lstm")
UNTRAINED = (".running_mean", ".running_var", "_scale", "_zero_point")


def parameter_count(model: onnx.ModelProto) -> int:
    """Values of all initializers but running statistics and what codes stand for."""
    return sum(
        math.prod(tensor.dims)
        for tensor in model.graph.initializer
        if not tensor.name.endswith(UNTRAINED)
    )


def inferred_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Shapes as onnx infers them, by value name."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {
        info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in (*graph.value_info, *graph.input, *graph.output)
    }
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def multiply_adds(model: onnx.ModelProto) -> int:
    """Multiply-adds of convolutions and matrix products."""
    shapes = inferred_shapes(model)
    total = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            per_output = math.prod(shapes[node.input[1]][1:])
        elif node.op_type in ("Gemm", "MatMul"):
            per_output = shapes[node.input[0]][-1]
        else:
            continue
        total += math.prod(shapes[node.output[0]]) * per_output
    return total


def feeds(name: str, batch: int) -> dict[str, np.ndarray]:
    """Random inputs by name."""
    entry = zoo.entry(name)
    rng = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {}
    model = zoo_outline(name, batch)
    for info, shape in zip(model.graph.input, entry.input_shapes, strict=True):
        full = (batch, *shape[1:])
        if entry.integer_limit is None:
            arrays[info.name] = rng.standard_normal(full, dtype=np.float32)
        else:
            arrays[info.name] = rng.integers(0, entry.integer_limit, full)
    return arrays


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs as ONNX Runtime computes them on the CPU."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [np.asarray(output) for output in session.run(None, inputs)]


def values(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Initializers by name."""
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def test_names_are_the_published_networks() -> None:
    assert set(zoo.names()) == set(PUBLISHED)
    assert len(zoo.names()) == len(set(zoo.names()))


def test_import_leaves_onnx_alone() -> None:
    code = (
        "import sys, tilewright.models.zoo as zoo; "
        "assert zoo.names() and zoo.entry('mlp'); assert 'onnx' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_name_is_a_plain_lookup_error() -> None:
    with pytest.raises(LookupError) as caught:
        zoo.build("resnet19")
    assert caught.type is LookupError
    assert caught.value.args == ("resnet19",)


def test_batch_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="batch"):
        zoo.build("mlp", batch=0)


@pytest.mark.parametrize("name", zoo.names())
def test_parameters_are_exact(name: str) -> None:
    entry = zoo.entry(name)
    assert parameter_count(zoo_outline(name)) == PUBLISHED[name][0]
    assert entry.parameters == PUBLISHED[name][0]


@pytest.mark.parametrize("name", zoo.names())
def test_multiply_adds_are_within_one_percent(name: str) -> None:
    entry, published = zoo.entry(name), PUBLISHED[name][1]
    if published is None:
        assert entry.multiply_adds is None
        return
    assert entry.multiply_adds == published
    assert multiply_adds(zoo_outline(name)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", zoo.names())
def test_shapes_follow_the_batch(name: str, batch: int) -> None:
    entry = zoo.entry(name)
    model = zoo_outline(name, batch)
    shapes = inferred_shapes(model)
    assert all(extent > 0 for shape in shapes.values() for extent in shape)
    for infos, expected in (
        (model.graph.input, entry.input_shapes),
        (model.graph.output, entry.output_shapes),
    ):
        found = tuple(shapes[info.name] for info in infos)
        assert found == tuple((batch, *shape[1:]) for shape in expected)


@pytest.mark.parametrize("name", zoo.names())
def test_node_names_are_unique_and_nothing_dangles(name: str) -> None:
    graph = zoo_outline(name).graph
    names = [node.name for node in graph.node]
    assert len(names) == len(set(names))
    read = {value for node in graph.node for value in node.input}
    ends = {info.name for info in graph.output}
    assert all(tensor.name in read for tensor in graph.initializer)
    assert all(value in read or value in ends for node in graph.node for value in node.output)


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_run(name: str) -> None:
    model = zoo.build(name)
    onnx.checker.check_model(model, full_check=True)
    for output in run(model, feeds(name, 1)):
        assert np.isfinite(output).all()
        assert np.abs(output).max() < 1e4
        assert output.std() > 1e-3


@pytest.mark.parametrize("name", SMALL)
def test_batch_items_do_not_mix(name: str) -> None:
    inputs = feeds(name, 2)
    both = run(zoo.build(name, batch=2), inputs)
    second = run(zoo.build(name), {key: array[1:] for key, array in inputs.items()})
    for pair, single in zip(both, second, strict=True):
        np.testing.assert_allclose(pair[1:], single, rtol=1e-4, atol=1e-4)
        assert not np.allclose(pair[0], pair[1])


def test_seeds_give_the_weights() -> None:
    first, again, other = (values(zoo.build("mlp", seed=seed)) for seed in (3, 3, 4))
    pair = values(zoo.build("mlp", batch=2, seed=3))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        np.testing.assert_array_equal(array, pair[name])
        assert not np.array_equal(array, other[name])


def test_weights_do_not_depend_on_the_order_of_building() -> None:
    forward, backward = GraphBuilder("forward"), GraphBuilder("backward")
    for name in ("a", "b"):
        forward.normal((4, 4), 1.0, name=name)
    for name in ("b", "a"):
        backward.normal((4, 4), 1.0, name=name)
    left, right = values(forward.model), values(backward.model)
    np.testing.assert_array_equal(left["a"], right["a"])
    np.testing.assert_array_equal(left["b"], right["b"])
    assert not np.array_equal(left["a"], left["b"])


def test_weights_are_the_same_in_every_process() -> None:
    builder = GraphBuilder("fixed")
    builder.normal((3,), 1.0, name="a")
    expected = [-0.5328635573387146, 0.41133785247802734, 0.907411515712738]
    np.testing.assert_allclose(values(builder.model)["a"], expected, rtol=1e-6)


def test_names_follow_the_modules() -> None:
    graph = zoo_outline("resnet18").graph
    nodes = {node.name for node in graph.node}
    assert {"conv1", "layer1.0.conv2", "layer2.0.downsample.1", "fc"} <= nodes
    assert "layer4.1.bn2.running_var" in {tensor.name for tensor in graph.initializer}


def with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
    )
    return model


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
@pytest.mark.parametrize("seed", [3, 4])
def test_batch_norms_know_what_they_read(name: str, seed: int) -> None:
    """For weights of other seeds than the three that variances were measured with."""
    model = zoo.build(name, batch=4, seed=seed)
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    weights, inputs = values(model), dict(given_inputs(name, 4, 5))
    found = run(with_outputs(model, [node.input[0] for node in norms]), inputs)
    for node, tensor in zip(norms, found[1:], strict=True):
        known = weights[node.input[4]]
        assert np.ptp(known) > 0.2 * known.mean()
        assert tensor.var(axis=(0, 2, 3)).mean() == pytest.approx(known.mean(), rel=0.5), node.name


def test_each_batch_norm_has_its_variance() -> None:
    measured = tomllib.loads((resources.files(zoo) / "variances.toml").read_text())
    for name in zoo.names():
        if zoo.entry(name).description == name and len(zoo.entry(name).input_shapes[0]) == 4:
            nodes = zoo_outline(name).graph.node
            norms = [node for node in nodes if node.op_type == "BatchNormalization"]
            assert len(measured.get(name, ())) == len(norms), name


def given_inputs(name: str, batch: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs as results are judged on."""
    shape, limit = (batch, *zoo.entry(name).input_shapes[0][1:]), zoo.entry(name).integer_limit
    info, rng = zoo_outline(name, batch).graph.input[0], np.random.default_rng(seed)
    if limit is not None:
        return {info.name: rng.integers(0, limit, shape)}
    image = len(shape) == 4
    drawn = random_image(rng, shape) if image else rng.standard_normal(shape, dtype=np.float32)
    return {info.name: drawn}


@pytest.mark.parametrize("name", SMALL)
def test_networks_tell_inputs_apart(name: str) -> None:
    """Their outputs differ, and are neither denormal nor saturated."""
    model = zoo.build(name, seed=1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    runs = [session.run(None, given_inputs(name, 1, seed)) for seed in range(4)]
    outputs = [np.asarray(each[0]) for each in runs]
    told = untold([outputs], ["logits"])
    assert not [each for each in told if "hardly" in each or "not normal" in each]
    spread = np.std(np.stack(outputs), axis=0).mean()
    assert 0.1 < spread < 10
    assert np.abs(outputs).max() < 100


def test_a_quantized_network_is_the_float_one_on_codes() -> None:
    inputs = feeds("resnet18", 1)
    floats = run(zoo.build("resnet18", seed=2), inputs)[0]
    model = zoo.build("resnet18_int8", seed=2)
    codes = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None) for name in codes
    )
    logits, *tensors = run(model, inputs)
    assert np.corrcoef(logits.ravel(), floats.ravel())[0, 1] > 0.97
    for name, tensor in zip(codes, tensors, strict=True):
        assert len(np.unique(tensor)) > 60, name
        assert np.mean(tensor == 255) < 0.02, name
        assert np.mean(tensor == 0) < 0.7, name


def test_quantized_weights_use_their_codes_and_scales_are_powers_of_two() -> None:
    weights = values(zoo.build("resnet18_int8"))
    for name, array in weights.items():
        if name.endswith(".weight"):
            assert array.dtype == np.int8
            assert set(np.abs(array.reshape(len(array), -1)).max(axis=1)) == {63}
        elif name.endswith("_scale") and array.shape == ():
            assert math.frexp(float(array))[0] == 0.5
        elif name.endswith(".bias"):
            assert array.dtype == np.int32
            factors = weights[f"{name}_scale"] / weights[name.replace("bias", "weight_scale")]
            assert np.unique(np.frexp(factors)[0]).tolist() == [0.5], "the scale of the input"
            assert 0.01 < (array * weights[f"{name}_scale"]).std() < 1


def structure(model: onnx.ModelProto) -> str:
    """A hash of nodes with names and attributes, of parameters with types and extents."""
    graph, lines = model.graph, []
    for node in graph.node:
        attributes = [
            onnx.helper.printable_attribute(a) for a in node.attribute if a.name != "value"
        ]
        values = [onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == "value"]
        constants = [onnx.numpy_helper.to_array(value).tolist() for value in values]
        fields = node.op_type, node.name, node.input, node.output, attributes, constants
        lines.append(repr([str(field) for field in fields]))
    lines += [f"{t.name} {t.data_type} {list(t.dims)}" for t in graph.initializer]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


STRUCTURES = {
    "resnet18": "66f1f9da90f2bb86",
    "resnet50": "f8bc5aded7efa966",
    "resnet18_int8": "a32052b1467cef62",
    "resnet50_int8": "df61fa9b6214ece1",
    "vgg19_bn": "9bb06f8b4a0f5d35",
    "inception_v3": "1eb882ad8021a73d",
    "googlenet": "387012eb5428a121",
    "densenet201": "031f513c1482a42a",
    "ssd_resnet50_512": "19b6a9af27c4d7f9",
    "mobilenet_v2": "86e68db2670b2391",
    "squeezenet1_1": "de1189e0c711bf41",
    "nasnet_mobile": "084beb51df3a1550",
    "mlp": "a23e39b22d7816d8",
    "lstm": "c73391d1fea521df",
    "bert_base": "7638f5cd153eb332",
    "gpt2_small": "efafba53d3b4bd7f",
    "vit_b16": "adc4da936cef63dd",
}


@pytest.mark.parametrize("name", zoo.names())
def test_networks_stay_as_they_are(name: str) -> None:
    assert structure(zoo_outline(name, 2)) == STRUCTURES[name]


def test_every_section_is_named_once() -> None:
    files = resources.files("tilewright.models.zoo").joinpath("networks").iterdir()
    found = [name for file in files for name in parse_sections(file.read_text())]
    assert len(found) == len(set(found)) == len(zoo_sections()) - 1
    described = {zoo.entry(name).description for name in zoo.names()}
    assert described <= set(found)


def test_an_operand_of_no_row_is_refused_by_name() -> None:
    sections = parse_sections("network lost\n    input: input 3,\n    Add < input inptu\n")
    with pytest.raises(LookupError, match="inptu"):
        append_network(GraphBuilder("lost"), "lost", sections)


def test_what_is_no_row_is_refused() -> None:
    sections = parse_sections("network wrong\n    input: input 3, << input\n")
    with pytest.raises(ValueError, match="not a row"):
        append_network(GraphBuilder("wrong"), "wrong", sections)


def test_builder_names_repeated_nodes_apart() -> None:
    builder = GraphBuilder("names")
    x = builder.input((3, 8, 8), name="input")
    with builder.scope("block"):
        x = builder.node("Relu", builder.node("Relu", x))
    assert x == "block.relu_1"


def test_builder_infers_convolution_shapes() -> None:
    builder = GraphBuilder("shapes", batch=2)
    x = builder.input((4, 9, 12), name="input")
    uneven = Convolution(6, (3, 5), stride=2, padding=(0, 1, 1, 2), groups=2)
    assert builder.shape(builder.conv(x, uneven)) == (2, 6, 4, 6)


def test_builder_renames_only_the_last_value() -> None:
    builder = GraphBuilder("outputs")
    x = builder.input((3,), name="input")
    first = builder.node("Relu", x)
    builder.node("Relu", first)
    with pytest.raises(ValueError, match="last node"):
        builder.output(first, "result")


def test_unequal_split_is_refused() -> None:
    builder = GraphBuilder("split")
    with pytest.raises(ValueError, match="equal parts"):
        builder.split(builder.input((7,), name="input"), 2, axis=1)


def test_ssd_anchors() -> None:
    boxes = ssd_anchors()
    assert boxes.shape == (6132, 4)
    np.testing.assert_allclose(boxes[0], [8, 8, 51.2, 51.2])
    np.testing.assert_allclose(boxes[1, 2:], math.sqrt(51.2 * 102.4), rtol=1e-6)
    np.testing.assert_allclose(boxes[2, 2] / boxes[2, 3], 2.0, rtol=1e-6)
    np.testing.assert_allclose(boxes[4, :2], [24, 8])
    np.testing.assert_allclose(boxes[-1, :2], [256, 256])


def test_lstm_follows_its_equations() -> None:
    model = zoo.build("lstm")
    weights, inputs = values(model), feeds("lstm", 1)
    sequence = weights["encoder.weight"][inputs["tokens"][0]]
    for layer in ("layer0", "layer1"):
        hidden, memory, outputs = np.zeros(650), np.zeros(650), []
        for x in sequence:
            gates = weights[f"{layer}.weight_ih"] @ x + weights[f"{layer}.bias_ih"]
            gates = gates + weights[f"{layer}.weight_hh"] @ hidden + weights[f"{layer}.bias_hh"]
            admit, forget, cell, emit = np.split(gates, 4)
            admit, forget, emit = (1 / (1 + np.exp(-gate)) for gate in (admit, forget, emit))
            memory = forget * memory + admit * np.tanh(cell)
            hidden = emit * np.tanh(memory)
            outputs.append(hidden)
        sequence = np.stack(outputs)
    expected = sequence @ weights["decoder.weight"].T + weights["decoder.bias"]
    np.testing.assert_allclose(run(model, inputs)[0][0], expected, rtol=1e-3, atol=1e-4)
