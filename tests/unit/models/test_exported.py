"""`hf:`, `torch:` and `.pt2` arguments up to the exporter, which is replaced here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from helpers.networks.onnx_models import model_of
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.scratch import FolderInUse
from tilewright.models import ModelOptions
from tilewright.models.exported import conversion
from tilewright.models.exported.conversion import (
    ARCHITECTURES,
    ExportRequest,
    export,
    program_request,
    torch_request,
    transformer_model,
    transformer_request,
)
from tilewright.models.loading import load
from tilewright.models.source import Source, parse_source, readable_name

MODEL = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]})


class _Exporter:
    """Writes a small model and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    def __call__(self, content: Mapping[str, Any], folder: Path) -> None:
        self.asked.append(content)
        (folder / "model.onnx").write_bytes(MODEL.SerializeToString())


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Exporter:
    found = _Exporter()
    monkeypatch.setattr(conversion, "run_exporter", found)
    monkeypatch.setattr(conversion, "find_spec", lambda name: name)
    monkeypatch.setattr(conversion, "_version", lambda name: "1")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return found


def _request(**changes: Any) -> ExportRequest:
    return ExportRequest(argument="hf:x", **{"content": {"a": 1}, "packages": ("json",), **changes})


def test_forms_of_arguments() -> None:
    assert parse_source("hf:bert[layers=2]") == Source(kind="transformer", text="bert[layers=2]")
    assert parse_source("torch:a.b:c") == Source(kind="torch", text="a.b:c")
    assert parse_source("dir/net.pt2") == Source(kind="program", text="dir/net.pt2")
    assert parse_source("HTTPS://a/b.onnx").kind == "url"
    names = ["zoo:mlp", "hf:vit[layers=1]", "torch:a:b", "d/n.pt2", "d/n.onnx", "op:relu[shape=2]"]
    shown = ["mlp", "vit[layers=1]", "a:b", "n", "n", "op:relu[shape=2]"]
    assert [readable_name(name) for name in names] == shown


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_has_a_full_size(name: str) -> None:
    label, model = transformer_model(name)
    assert label == name
    assert model["fields"] and model["outputs"]
    for field, value in model["fields"].items():
        assert field.isidentifier() and value is not None
    (shape,) = model["inputs"].values()
    assert shape in ((3, 224, 224), (128,), (64,))


def test_parameters_become_fields() -> None:
    name, model = transformer_model("bert[layers=2,hidden=128,sequence=600]")
    assert name == "bert-layers2-hidden128-sequence600"
    assert model["fields"] == {
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 30522,
        "max_position_embeddings": 600,
    }
    assert (model["inputs"], model["integers"]) == ({"input_ids": (600,)}, ["input_ids"])
    _, model = transformer_model("resnet[depths=1x2,widths=16x32,bottleneck=0,image=64]")
    assert model["fields"]["layer_type"] == "basic"
    sizes = model["fields"]["depths"], model["fields"]["hidden_sizes"]
    assert sizes == ((1, 2), (16, 32))
    _, model = transformer_model("convnext[depths=1x2,widths=16x32]")
    assert model["fields"]["num_stages"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t5", "no architecture 't5'"),
        ("bert[layer=2]", "no parameter 'layer'"),
        ("bert[layers=two]", "is no number"),
        ("bert[layers=2,layers=3]", "twice"),
        ("bert[layers=0]", "layers cannot be 0"),
        ("bert[layers=2x2]", "is one number"),
        ("bert[hidden=100,heads=3]", "3 heads do not divide hidden=100"),
        ("vit[image=30]", "patch=16 does not divide image=30"),
        ("resnet[depths=1x1]", "not the same number of stages"),
        ("convnext[depths=1x-1x1x1]", "depths cannot be 1x-1x1x1"),
    ],
)
def test_configurations_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        transformer_model(text)


def test_shapes_batch_and_seed_reach_the_request() -> None:
    _, request = transformer_request("bert", ModelOptions(batch=3, seed=7))
    assert request.content["inputs"] == {"input_ids": (3, 128)}
    assert request.content["seed"] == 7
    _, request = transformer_request("bert", ModelOptions(shapes={"input_ids": (2, 9)}))
    assert request.content["inputs"] == {"input_ids": (2, 9)}
    for shapes in ({"x": (1, 2)}, {"input_ids": (1, 2, 3)}, {"input_ids": (0, 2)}):
        with pytest.raises(UsageError):
            transformer_request("bert", ModelOptions(shapes=shapes))
    with pytest.raises(UsageError, match="batch must be a whole number from 1"):
        transformer_request("bert", ModelOptions(batch=0))


@pytest.mark.parametrize("text", ["", "a", "a:", ":b", "a:b:c", "a b:c", "a/b:c", "a:b[c=1]"])
def test_places_of_modules(text: str) -> None:
    assert torch_request("a.b:c.d", ModelOptions())[1].content["module"] == "a.b"
    with pytest.raises(UsageError, match="MODULE:NAME"):
        torch_request(text, ModelOptions())


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").touch()
    with pytest.raises(ModelError, match="no such file") as caught:
        program_request(tmp_path / "nett.pt2")
    assert "net.pt2" in (caught.value.hint or "")
    with pytest.raises(ModelError, match="is a folder"):
        program_request(tmp_path)


def test_an_architecture_is_exported_once(exporter: _Exporter, tmp_path: Path) -> None:
    options = ModelOptions(shapes={"x": (1, 4)})
    first = load("hf:vit[layers=1]", ModelOptions())
    again = load("hf:vit[layers=1]", ModelOptions())
    assert len(exporter.asked) == 1
    assert first.name == "vit-layers1"
    assert first.onnx_path == again.onnx_path
    assert first.onnx_path.is_relative_to(tmp_path / "cache" / "exports")
    load("hf:vit[layers=1]", ModelOptions(seed=1))
    load("hf:vit[layers=2]", ModelOptions())
    assert len(exporter.asked) == 3
    with pytest.raises(UsageError, match="no input 'x'"):
        load("hf:vit", options)


def test_the_cache_keeps_to_its_limit_and_what_is_in_use(
    exporter: _Exporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "0")
    first = load("hf:vit[layers=1]")
    second = load("hf:vit[layers=2]")
    assert first.onnx_path.exists() and second.onnx_path.exists()
    gone = first.onnx_path
    del first
    again = load("hf:vit[layers=2]")
    assert again.onnx_path == second.onnx_path
    assert not gone.exists()
    assert len(exporter.asked) == 2


def test_users_own_code_is_exported_each_time(exporter: _Exporter, tmp_path: Path) -> None:
    for _ in range(2):
        model = load("torch:mine:network", ModelOptions(shapes={"x": (1, 4)}, seed=3))
    assert model.name == "mine:network"
    assert [a["shapes"] for a in exporter.asked] == [{"x": [1, 4]}] * 2
    assert not (tmp_path / "cache").exists()


def test_a_program_is_known_by_its_contents(exporter: _Exporter, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    for content in (b"one", b"one", b"two"):
        path.write_bytes(content)
        assert load(str(path)).name == "net"
    assert len(exporter.asked) == 2


def test_an_export_that_was_cut_short_is_made_anew(exporter: _Exporter) -> None:
    path = load("hf:vit").onnx_path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert load("hf:vit").onnx_path.read_bytes() == whole
    (path.parent / "sizes.json").write_text("[1]")
    load("hf:vit")
    assert len(exporter.asked) == 3


def test_other_versions_export_anew(exporter: _Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    load("hf:vit")
    monkeypatch.setattr(conversion, "_version", lambda name: "2")
    load("hf:vit")
    assert len(exporter.asked) == 2


def test_a_cache_that_cannot_be_written_costs_the_file_alone(
    exporter: _Exporter, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert load("hf:vit").name == "vit"


def test_a_missing_package_is_named_with_what_helps(
    exporter: _Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "find_spec", lambda name: name != "transformers" or None)
    with pytest.raises(TargetError, match=r"'hf:vit' needs transformers") as caught:
        load("hf:vit")
    assert caught.value.exit_code == 3
    assert "pip install 'tilewright[transformers]'" in (caught.value.hint or "")


def _exporter_module(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the exporter's place, run by the real process."""
    (folder / "standin.py").write_text(
        f"import sys, json, pathlib\nfolder = pathlib.Path(sys.argv[1])\n{body}\n"
    )
    monkeypatch.setattr(conversion, "EXPORTER", "standin")
    monkeypatch.syspath_prepend(str(folder))


def test_the_process_that_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "print('noise'); (folder / 'model.onnx').write_text(json.load(sys.stdin)['a'])"
    _exporter_module(tmp_path, body, monkeypatch)
    made = export(_request(content={"a": "text"}), tmp_path / "cache")
    assert made.path.read_text() == "text"
    assert isinstance(made.keeper, FolderInUse)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("raise ValueError('bad \\x1b[31m luck')", ModelError, r"ValueError: bad \\x1b\[31m luck"),
        ("import os; os.abort()", ModelError, "exit code -6"),
        ("sys.exit(0)", ModelError, "exit code 0"),
        (
            "(folder / 'result.json').write_text("
            "json.dumps({'kind': 'UsageError', 'message': 'no such thing', 'hint': None}))",
            UsageError,
            "no such thing",
        ),
    ],
)
def test_a_process_that_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    kind: type[Exception],
    message: str,
) -> None:
    _exporter_module(tmp_path, body, monkeypatch)
    with pytest.raises(kind, match=message):
        export(_request(), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
