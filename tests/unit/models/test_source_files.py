"""Files that are missing, broken, hostile, too new or unfinished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from helpers.networks.onnx_models import model_of, normal, reference
from tilewright.core.errors import ModelError, TilewrightError, UsageError
from tilewright.deploy.manifest import MANIFEST, SHAPES
from tilewright.graph.evaluate import run_graph
from tilewright.models import ModelOptions
from tilewright.models.loading import load
from tilewright.models.onnx_file import save_onnx

ESCAPE = "\x1b[31m<b>red</b>\n"


def small(**changes: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    inputs = {"x": [1, 3, 8, 8]}
    return model_of(nodes, inputs, constants={"w": normal(4, 3, 3, 3)}, **changes)


def stored_outside(folder: Path, location: str, *, length: int | None = None) -> Path:
    model = small()
    tensor = model.graph.initializer[0]
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": "0", "length": str(length or size)}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_file_that_needs_no_change_is_its_own_reference(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(small(), str(path))
    model = load(str(path))
    assert (model.name, model.onnx_path, model.outputs) == ("net", path, ("y",))
    assert {name: kind.shape for name, kind in model.inputs.items()} == {"x": (1, 3, 8, 8)}


def test_missing_file_names_near_ones(tmp_path: Path) -> None:
    onnx.save(small(), str(tmp_path / "resnet.onnx"))
    with pytest.raises(ModelError, match=r"no such file.*resnte\.onnx") as caught:
        load(str(tmp_path / "resnte.onnx"))
    assert "'resnet.onnx'" in (caught.value.hint or "")
    with pytest.raises(ModelError, match="no such file"):
        load(str(tmp_path / "nowhere" / "a.onnx"))


@pytest.mark.parametrize("name", [MANIFEST, SHAPES])
def test_an_artifact_where_a_model_is_wanted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="is an artifact, which this command") as told:
        load(str(tmp_path))
    assert "the model that it was made from" in told.value.hint


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").mkdir()
    with pytest.raises(ModelError, match="is a folder"):
        load(str(tmp_path / "a.onnx"))
    with pytest.raises(UsageError, match="is a folder"):
        load(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"hello world, no model at all\n" * 9, bytes(range(256))])
def test_file_that_is_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(str(path))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.99])
def test_file_that_is_cut_short(tmp_path: Path, share: float) -> None:
    whole = small().SerializeToString()
    path = tmp_path / "a.onnx"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError):
        load(str(path))


def test_constant_that_is_cut_short(tmp_path: Path) -> None:
    model = small()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-8]
    path = tmp_path / "a.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="constant 'w'"):
        load(str(path))


def test_external_weights(tmp_path: Path) -> None:
    path = stored_outside(tmp_path, "weights.bin")
    (tmp_path / "weights.bin").write_bytes(normal(4, 3, 3, 3).tobytes())
    model = load(str(path))
    x = normal(1, 3, 8, 8, seed=5)
    wanted = reference(small(), {"x": x})["y"]
    np.testing.assert_allclose(run_graph(model.graph, {"x": x})["y"], wanted, atol=1e-5)


def test_external_weights_missing_or_short(tmp_path: Path) -> None:
    path = stored_outside(tmp_path, "weights.bin")
    with pytest.raises(ModelError, match=r"'w'.*missing.*weights\.bin"):
        load(str(path))
    (tmp_path / "weights.bin").write_bytes(b"1234")
    with pytest.raises(ModelError, match="cut short"):
        load(str(path))


@pytest.mark.parametrize("location", ["../secret.bin", "a/../../secret.bin", "{outside}", ""])
def test_external_weights_outside_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    outside = tmp_path / "secret.bin"
    outside.write_bytes(normal(4, 3, 3, 3).tobytes())
    path = stored_outside(folder, location.format(outside=outside))
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(str(path))


def test_external_weights_behind_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    outside = tmp_path / "secret.bin"
    outside.write_bytes(normal(4, 3, 3, 3).tobytes())
    (folder / "weights.bin").symlink_to(outside)
    with pytest.raises(ModelError, match="by a link"):
        load(str(stored_outside(folder, "weights.bin")))


def test_large_models_keep_weights_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.models.onnx_file._LARGE_BYTES", 100)
    model = small()
    model.graph.initializer.append(numpy_helper.from_array(normal(40, 40), "unused"))
    save_onnx(model, tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx.data").is_file()
    loaded = load(str(tmp_path / "a.onnx"), ModelOptions(batch=2))
    assert loaded.onnx_path.with_name("model.onnx.data").is_file()
    x = normal(2, 3, 8, 8)
    np.testing.assert_allclose(
        reference(loaded.onnx_path, {"x": x})["y"],
        run_graph(loaded.graph, {"x": x})["y"],
        atol=1e-5,
    )


@pytest.mark.parametrize("opset", [0, 999])
def test_opset_out_of_range(tmp_path: Path, opset: int) -> None:
    model = small()
    model.opset_import[0].version = opset
    path = tmp_path / "a.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=f"operator set {opset}"):
        load(str(path))
    del model.opset_import[:]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="operator set"):
        load(str(path))


@pytest.mark.parametrize("domain", ["", "com.example"])
def test_unknown_operator_is_named_with_its_node(tmp_path: Path, domain: str) -> None:
    model = small()
    model.graph.node[1].op_type = "Frobnicate"
    model.graph.node[1].domain = domain
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
        model.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "a.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"'relu'.*Frobnicate"):
        load(str(path))


def test_dangling_and_contradicting_models(tmp_path: Path) -> None:
    model = small()
    model.graph.node[1].input[0] = "nothing"
    path = tmp_path / "a.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="nothing"):
        load(str(path))
    model = small()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError):
        load(str(path))


def test_names_with_escapes_stay_in_the_graph_and_out_of_messages(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [ESCAPE], ["y"], name=ESCAPE)]
    path = tmp_path / "a.onnx"
    onnx.save(model_of(nodes, {ESCAPE: [2, 3]}), str(path))
    assert load(str(path)).graph.inputs == (ESCAPE,)
    dynamic = model_of(nodes, {ESCAPE: ["\x1b]0;n\x07", 3]})
    unknown = model_of(nodes, {ESCAPE: [2, 3]})
    unknown.graph.node[0].op_type = ESCAPE
    for model, options in (
        (dynamic, ModelOptions()),
        (unknown, ModelOptions()),
        (dynamic, ModelOptions(shapes={"z\x1b": (1,)})),
        (dynamic, ModelOptions(shapes={ESCAPE: (1,)})),
    ):
        path.write_bytes(model.SerializeToString())
        with pytest.raises(TilewrightError) as caught:
            load(str(path), options)
        text = caught.value.message + (caught.value.hint or "")
        assert text.isprintable()


@pytest.mark.parametrize(
    ("argument", "message", "hint"),
    [("", "no model", "zoo:NAME"), ("resnet50", "is no model", "zoo:resnet50"),
     ("zoo:resnet5", "no network 'resnet5'", "resnet50"), ("zo:resnet50", "no models by", "zoo:"),
     ("model.pth", "is no model", ".onnx"), ("tf:bert", "no models by", "op:OPERATOR"),
     ("hf:brt", "no architecture 'brt'", "bert"), ("hf:bert[layers=2", "does not end with", "")],
)  # fmt: skip
def test_arguments_that_mean_nothing(argument: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load(argument)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (["x", "s", "z"], "node 'quantize' in .* reads 's', which nothing writes"),
        (["x"], "node 'quantize' in .* is no 'QuantizeLinear' as ONNX has it"),
    ],
)
def test_codes_without_their_scale(tmp_path: Path, inputs: list[str], told: str) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", inputs, ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "other", "z"], ["y"], name="dequantize"),
    ]
    constants = {"z": np.array(0, np.uint8), "other": np.array(0.1, np.float32)}
    graph = helper.make_graph(
        nodes,
        "codes",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "codes.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())
    with pytest.raises(ModelError, match=told):
        load(str(path))
