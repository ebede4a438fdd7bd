"""Modules of PyTorch that Python hands over, with a stand-in for the package.

The stand-in exports every module as the same small ONNX file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import model_of
from tilewright.core.errors import ModelError, TargetError
from tilewright.models import ModelOptions, given
from tilewright.models.exported.exporter import write_program
from tilewright.models.given import given_model, is_model, several_models

NONE = ModelOptions()


class Module:
    """A module with a part; both train until they are told otherwise."""

    def __init__(self) -> None:
        self.training, self.seen = True, []
        self.parts: list[Module] = []

    def modules(self) -> list[Module]:
        return [self, *self.parts]

    def forward(self, x: Any) -> Any:
        return x


class Program:
    """As torch.export.ExportedProgram."""


FLOAT = SimpleNamespace(is_floating_point=True)


class Tensor:
    shape, dtype = (2, 8), FLOAT


def as_onnx(**stated: str) -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    model = model_of([node], {"x": (2, 8)})
    for part in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        for key, value in stated.items():
            part.metadata_props.add(key=key, value=value)
    model.graph.node[0].doc_string = " ".join(stated.values())
    return model


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The package; `exported` keeps what was asked of it, `traced` whether parts were training."""
    exported: list[dict[str, Any]] = []
    traced: list[list[bool]] = []

    def trace(module: Module, _arguments: tuple[()], kwargs: Any) -> Program:
        traced.append([part.training for part in module.modules()])
        return Program()

    def export(program: Program, **named: Any) -> Any:
        exported.append(named)
        model = as_onnx(stack="/home/somebody/net.py")
        return SimpleNamespace(save=lambda path: onnx.save(model, path))

    library = SimpleNamespace(
        Tensor=Tensor,
        float32=FLOAT,
        randn=lambda shape, dtype: Tensor(),
        nn=SimpleNamespace(Module=Module),
        export=SimpleNamespace(ExportedProgram=Program, export=trace),
        onnx=SimpleNamespace(export=export),
        no_grad=nullcontext,
        exported=exported,
        traced=traced,
    )
    monkeypatch.setitem(sys.modules, "torch", library)
    monkeypatch.setattr(given, "require_packages", lambda request: None)
    return library


def test_modules_programs_and_pairs_are_models(torch: SimpleNamespace) -> None:
    pair = (Module(), Tensor())
    for value in (Module(), Program(), pair):
        assert is_model(value) and several_models(value) == [value]
    two = [Module(), Module()]
    assert not is_model(two) and several_models(two) == two, "the second is no example"
    assert not is_model((Module(), Tensor(), Tensor()))


def test_a_module_is_traced_in_inference_and_trains_on_afterwards(
    torch: SimpleNamespace, tmp_path: Path
) -> None:
    network, frozen = Module(), Module()
    frozen.training, network.parts = False, [frozen]
    made = given_model((network, Tensor()), NONE, tmp_path)
    assert torch.traced == [[False, False]]
    assert network.training and not frozen.training
    assert Path(made.argument).name == "Module.onnx" and Path(made.argument).is_file()
    assert made.origin.startswith("torch.nn.Module ") and made.origin.endswith(".Module")


def test_a_program_is_not_traced_again(torch: SimpleNamespace, tmp_path: Path) -> None:
    made = given_model(Program(), NONE, tmp_path)
    assert torch.traced == [] and len(torch.exported) == 1
    assert made.origin.startswith("torch.export.ExportedProgram ")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (RuntimeError("\n  cannot trace \x1b[31m\nat line 3"), "cannot trace \\\\x1b\\[31m$"),
        (KeyError("x"), "ONNX: .*x.{1,2}$"),
        (ValueError(), "ONNX: ValueError$"),
    ],
)
def test_what_pytorch_says_of_a_module_that_it_cannot_trace(
    torch: SimpleNamespace, tmp_path: Path, raised: Exception, said: str
) -> None:
    """The first line of it, or the kind of error; the module trains on."""

    def fail(*_given: Any, **_named: Any) -> None:
        raise raised

    torch.export.export = fail
    network = Module()
    with pytest.raises(ModelError, match="Module could not be exported to ONNX: ") as found:
        given_model((network, Tensor()), NONE, tmp_path)
    assert found.match(said)
    assert network.training and found.value.__cause__ is raised


def test_our_own_errors_come_as_they_are(
    torch: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_request: object) -> None:
        raise TargetError("needs onnxscript")

    monkeypatch.setattr(given, "require_packages", missing)
    with pytest.raises(TargetError, match="^needs onnxscript"):
        given_model(Module(), NONE, tmp_path)


def everything(model: onnx.ModelProto) -> list[Any]:
    """What of a file can hold metadata."""
    graph, functions = model.graph, model.functions
    nodes = [*graph.node, *(node for function in functions for node in function.node)]
    return [graph, *functions, *nodes, *graph.input, *graph.output, *graph.value_info]


@pytest.fixture
def written(torch: SimpleNamespace, tmp_path: Path) -> Callable[..., onnx.ModelProto]:
    def write(model: onnx.ModelProto | None = None, **named: Any) -> onnx.ModelProto:
        if model is not None:
            save = SimpleNamespace(save=lambda path: onnx.save(model, path))
            torch.onnx.export = lambda program, **_named: save
        write_program(torch, Program(), tmp_path / "a.onnx", **named)
        return onnx.load(tmp_path / "a.onnx")

    return write


def test_a_file_does_not_tell_where_its_nodes_come_from(
    written: Callable[..., onnx.ModelProto],
) -> None:
    """Stack traces name the folders of whoever exported, and are half of the file."""
    model = as_onnx(stack="/home/somebody/net.py")
    function = model.functions.add(name="f", domain="d")
    function.node.append(model.graph.node[0])
    function.metadata_props.add(key="stack", value="/home/somebody")
    value = model.graph.value_info.add(name="z")
    value.metadata_props.add(key="stack", value="/home/somebody")
    kept = written(model)
    assert len(everything(kept)) == 7
    assert not any(part.metadata_props for part in everything(kept))
    assert b"somebody" not in kept.SerializeToString()
    assert [node.op_type for node in kept.graph.node] == ["Relu"] and kept.graph.node[0].name


def test_outputs_are_named_where_names_are_known(
    torch: SimpleNamespace, written: Callable[..., onnx.ModelProto]
) -> None:
    written()
    written(outputs=("logits", "hidden"))
    assert [asked["output_names"] for asked in torch.exported] == [None, ["logits", "hidden"]]
    for asked in torch.exported:
        assert asked["dynamo"] and asked["optimize"] and not asked["verbose"]
