"""Models that Python hands over as objects are like files from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from helpers.networks.onnx_models import model_of, normal
from tilewright.core.errors import ModelError, OutputError, UsageError
from tilewright.deploy.shipment import default_folder
from tilewright.graph.tasks import fused_network
from tilewright.models import ModelOptions
from tilewright.models.given import given_model, is_model, several_models
from tilewright.models.loading import load

pytestmark = pytest.mark.regression

NONE = ModelOptions()


def proto(name: str = "my net", scale: float = 1.0) -> onnx.ModelProto:
    weight = {"w": normal(8, 400) * np.float32(scale)}
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, 8)}, constants=weight
    )
    model.graph.name = name
    model.producer_name = "a test"
    return model


def test_an_onnx_model_in_memory(tmp_path: Path) -> None:
    model = proto()
    before = model.SerializeToString()
    given = given_model(model, NONE, tmp_path)
    assert model.SerializeToString() == before, "it is the caller's"
    assert given.origin == "onnx.ModelProto 'my net' of a test"
    loaded = load(given.argument)
    assert (loaded.name, default_folder(given.argument).name) == ("my_net", "my_net")
    assert fused_network(loaded.graph).key == fused_network(load(given.argument).graph).key


def test_the_same_model_is_the_same_file_and_another_one_is_not(tmp_path: Path) -> None:
    first = given_model(proto(), NONE, tmp_path)
    assert given_model(proto(), NONE, tmp_path) == first
    assert given_model(proto(scale=2.0), NONE, tmp_path).argument != first.argument
    other = given_model(proto(name="other"), NONE, tmp_path)
    assert Path(other.argument).name == "other.onnx"
    assert Path(first.argument).is_file(), "one does not take the other's place"
    files = [path for path in tmp_path.rglob("*.onnx") if path.is_file()]
    assert len(files) == 3


def test_a_damaged_copy_in_the_cache_is_made_again(tmp_path: Path) -> None:
    first = given_model(proto(), NONE, tmp_path)
    Path(first.argument).write_bytes(b"cut short")
    assert given_model(proto(), NONE, tmp_path) == first
    assert load(first.argument).outputs == ("y",)


@pytest.mark.parametrize("name", ["", "/", "../../etc/passwd", "a" * 300, "a\x1bb\nc"])
def test_any_name_is_a_file_of_its_folder(tmp_path: Path, name: str) -> None:
    path = Path(given_model(proto(name), NONE, tmp_path).argument)
    assert path.parent.parent == tmp_path / "exports"
    assert path.is_file() and path.suffix == ".onnx" and len(path.name) < 80


def test_weights_that_were_left_behind_are_refused(tmp_path: Path) -> None:
    model = proto()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match="'w'.*another file") as found:
        given_model(model, NONE, tmp_path)
    assert "onnx.load" in str(found.value)


def test_a_large_model_keeps_its_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.models.onnx_file._LARGE_BYTES", 8)
    model = proto()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(8, 400), "w"))
    given = given_model(model, NONE, tmp_path)
    assert (Path(given.argument).parent / "my_net.onnx.data").is_file()
    assert load(given.argument).graph.constants
    assert model.graph.initializer[0].raw_data, "it is the caller's"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "exports").write_text("in the way")
    with pytest.raises(OutputError, match="cannot keep the model"):
        given_model(proto(), NONE, tmp_path)


def test_texts_and_paths_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert given_model("zoo:mlp", NONE, tmp_path).argument == "zoo:mlp"
    assert given_model(Path("a/b.onnx"), NONE, tmp_path).argument == "a/b.onnx"
    assert given_model("~/b.onnx", NONE, tmp_path).argument == str(tmp_path / "b.onnx")
    assert not (tmp_path / "exports").exists()
    with pytest.raises(UsageError, match="~nobody-at-all"):
        given_model("~nobody-at-all/b.onnx", NONE, tmp_path)


@pytest.mark.parametrize("value", [None, 3, b"zoo:mlp", object(), {}, ["zoo:mlp"], ("a", "b")])
def test_anything_else_is_refused_with_what_is_known(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="is no model") as found:
        given_model(value, NONE, tmp_path)
    assert "torch.nn.Module" in str(found.value)


def test_one_model_or_several() -> None:
    model = proto()
    assert is_model("zoo:mlp") and is_model(Path("x")) and is_model(model)
    assert several_models("zoo:mlp") == ["zoo:mlp"]
    assert several_models(("zoo:mlp", model)) == ["zoo:mlp", model]
    assert several_models([]) == []
    for wrong in (3, b"x", {"a": 1}, None):
        with pytest.raises(UsageError):
            several_models(wrong)


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, loaded by the first test that needs it."""
    pytest.importorskip("onnxscript")
    found = pytest.importorskip("torch")
    found.set_num_threads(1)
    return found


def network(torch: Any) -> Any:
    torch.manual_seed(0)

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.drop = torch.nn.Linear(6, 3), torch.nn.Dropout(0.9)

        def forward(self, image: Any) -> Any:
            return self.drop(torch.relu(self.head(image)))

    return Small()


def test_a_module_with_example_inputs(torch: Any, tmp_path: Path) -> None:
    module, example = network(torch), torch.ones(2, 6)
    pair = (module, example)
    assert is_model(pair) and several_models(pair) == [pair]
    given = given_model(pair, NONE, tmp_path)
    assert module.training and module.drop.training, "it is the caller's"
    assert "torch.nn.Module" in given.origin and given.origin.endswith("Small")
    assert Path(given.argument).name.endswith("Small.onnx")
    loaded = load(given.argument)
    assert {name: kind.shape for name, kind in loaded.inputs.items()} == {"image": (2, 6)}
    import onnxruntime

    ran = onnxruntime.InferenceSession(given.argument).run(None, {"image": example.numpy()})[0]
    with torch.no_grad():
        expected = torch.relu(module.head(example)).numpy()
    np.testing.assert_allclose(ran, expected, rtol=1e-5, atol=1e-6)
    again = given_model((module, (example,)), NONE, tmp_path)
    assert again == given, "the same weights are the same file"
    assert given_model((module, {"image": example}), NONE, tmp_path) == given


def test_a_module_with_shapes_from_the_options(torch: Any, tmp_path: Path) -> None:
    module = network(torch)
    options = ModelOptions(shapes={"image": (5, 6)})
    loaded = load(given_model(module, options, tmp_path).argument, options)
    assert loaded.inputs["image"].shape == (5, 6)
    with pytest.raises(UsageError, match="shape of input 'image'"):
        given_model(module, NONE, tmp_path)
    assert module.training


def test_an_exported_program(torch: Any, tmp_path: Path) -> None:
    program = torch.export.export(network(torch).eval(), (torch.ones(1, 6),))
    given = given_model(program, NONE, tmp_path)
    assert given.origin.startswith("torch.export.ExportedProgram")
    assert load(given.argument).outputs


def test_a_module_that_cannot_be_traced_is_a_bad_model(torch: Any, tmp_path: Path) -> None:
    class Undecided(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            raise TypeError("the user's own mistake")

    with pytest.raises(ModelError, match="could not be exported to ONNX"):
        given_model((Undecided(), torch.ones(2)), NONE, tmp_path)
