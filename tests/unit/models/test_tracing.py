"""What the exporter says to modules and inputs that do not fit; PyTorch is a stand-in here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.core.errors import ModelError, TilewrightError, UsageError
from tilewright.models import ModelOptions
from tilewright.models.exported import exporter
from tilewright.models.exported.conversion import torch_request
from tilewright.models.exported.exporter import inputs_of_module


@dataclass(frozen=True)
class Kind:
    """A type of elements."""

    name: str
    is_floating_point: bool = False


FLOAT, INTEGER, TRUTH = Kind("float32", True), Kind("int64"), Kind("bool")


@dataclass
class Tensor:
    """A tensor without values."""

    shape: tuple[int, ...]
    dtype: Kind = FLOAT


class Module:
    """As torch.nn.Module, with two inputs of which one may be left out."""

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        return x

    def eval(self) -> None:
        """Nothing to do."""


class Program:
    """As torch.export.ExportedProgram."""


TORCH = SimpleNamespace(
    Tensor=Tensor,
    float32=FLOAT,
    bool=TRUTH,
    randn=lambda shape, dtype: Tensor(shape, dtype),
    full=lambda shape, value, dtype: Tensor(shape, dtype),
    manual_seed=lambda seed: None,
    nn=SimpleNamespace(Module=Module),
    export=SimpleNamespace(ExportedProgram=Program, export=lambda module, args, kwargs: kwargs),
)
CODE = """
from test_tracing import INTEGER, Module, Program, Tensor

module, number = Module(), 3

class Network(Module):
    class Inner(Module):
        pass

def pair():
    return Module(), Tensor((1, 6), INTEGER)

def named():
    return Module(), {"scale": Tensor((), INTEGER), "x": Tensor((2, 6))}

def listed():
    return Module(), [3]

def program():
    return Program()

def wants(argument):
    return Module()
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the user's own code in it."""
    (tmp_path / "own_modules.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_modules", raising=False)
    return tmp_path


def traced(name: str, module: str = "own_modules", **options: Any) -> Any:
    _, request = torch_request(f"{module}:{name}", ModelOptions(**options))
    return exporter.traced(TORCH, {**request.content, "argument": f"torch:{module}:{name}"})


@pytest.mark.usefixtures("mine")
def test_shapes_and_types_of_what_a_module_is_traced_with() -> None:
    shapes = {"x": (2, 3)}
    for name in ("module", "Network", "Network.Inner"):
        assert traced(name, shapes=shapes) == {"x": Tensor((2, 3))}
    assert traced("pair") == {"x": Tensor((1, 6), INTEGER)}
    assert traced("pair", batch=4) == {"x": Tensor((4, 6), INTEGER)}
    assert traced("pair", batch=4, shapes=shapes) == {"x": Tensor((2, 3), INTEGER)}
    found = traced("named", batch=3)
    assert found == {"x": Tensor((3, 6)), "scale": Tensor((), INTEGER)}
    assert list(found) == ["x", "scale"]
    assert isinstance(traced("program"), Program)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("module", {}, "shape of input 'x' is not known", "--shape x=1,3,224,224"),
        ("module", {"shapes": {"y": (1,)}}, "no input 'y'", "'x'"),
        ("module", {"shapes": {"scale": (1,)}}, "shape of input 'x'", "--shape x="),
        ("listed", {}, "example of input 'x' is no tensor but a int", ""),
        ("Netwrk", {}, "has no 'Netwrk'", "'Network'"),
        ("Network.Iner", {}, "has no 'Iner'", "'Inner'"),
        ("number", {}, "gives a int, not a torch.nn.Module", "returns a module"),
    ],
)
def test_what_cannot_be_traced(name: str, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        traced(name, **options)
    assert hint in (caught.value.hint or "")


@pytest.mark.usefixtures("mine")
def test_the_users_own_errors_come_as_they_are(mine: Path) -> None:
    with pytest.raises(UsageError, match="no module 'own_modles'"):
        traced("module", module="own_modles")
    with pytest.raises(UsageError, match="no module 'own_modules.inner'"):
        traced("module", module="own_modules.inner")
    (mine / "lacking.py").write_text("import nowhere_to_be_found")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        traced("module", module="lacking")
    with pytest.raises(UsageError, match="needs arguments: "):
        traced("wants")


def test_examples_that_are_too_many() -> None:
    def forward(x: Tensor) -> Tensor:
        return x

    with pytest.raises(UsageError, match="2 example inputs for a module with 1 inputs"):
        inputs_of_module(TORCH, forward, (Tensor((1,)), Tensor((1,))), {}, None)


@pytest.mark.parametrize("kind", [UsageError, ModelError])
def test_errors_raised_on_purpose_become_an_answer(
    kind: type[TilewrightError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> Any:
        raise kind("what is wrong", hint="what helps")

    monkeypatch.setattr(exporter, "import_module", refuse)
    assert exporter.main(tmp_path, {"kind": "program"}) != 0
    text = (tmp_path / "result.json").read_text()
    assert f'"kind": "{kind.__name__}"' in text and "what helps" in text
