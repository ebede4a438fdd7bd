"""How a failed export is told: in words, never in lines of a traceback. Needs no PyTorch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.models.exported import conversion, exporter

pytestmark = pytest.mark.regression


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the exporter answers to a request, with a torch that is made up."""

    class Module:
        pass

    def broken(path: str) -> None:
        raise RuntimeError(f"cannot\nread {path}")

    export = SimpleNamespace(ExportedProgram=type("ExportedProgram", (), {}), load=broken)
    torch = SimpleNamespace(
        nn=SimpleNamespace(Module=Module),
        export=export,
        manual_seed=lambda seed: None,
        __spec__=SimpleNamespace(origin=None),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def asked(**request: Any) -> Any:
        content = {"kind": "torch", "argument": "A", "seed": 0, "shapes": {}, "batch": None}
        assert exporter.main(tmp_path, {**content, **request}) != 0
        return json.loads((tmp_path / "result.json").read_text())

    return asked


def test_a_program_that_is_damaged(answer: Callable[..., Any]) -> None:
    said = answer(kind="program", path="net.pt2", argument="net.pt2")
    assert said["kind"] == ModelError.__name__
    assert said["message"] == (
        "'net.pt2' is not what torch.export.save writes, or is damaged: RuntimeError: cannot"
    )


@pytest.mark.parametrize("name", ["system", "path.join"])
def test_a_function_that_wants_arguments(answer: Callable[..., Any], name: str) -> None:
    said = answer(module="os", name=name)
    assert said["kind"] == UsageError.__name__
    assert "needs arguments: " in said["message"]


def test_an_error_of_the_users_own_code_and_its_place(
    answer: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_failing.py").write_text("def network():\n    raise KeyError('no \\x1b[31m')\n")
    monkeypatch.chdir(tmp_path)
    said = answer(module="own_failing", name="network")
    assert said["kind"] == ModelError.__name__
    assert said["message"].startswith("'A' could not be exported: KeyError: ")
    assert "own_failing.py', line 2, in 'network'" in said["hint"]
    assert "\x1b" not in said["message"]


def raised_in(*files: Path) -> Exception:
    """An error of a function in the last file, called from functions in those before it."""
    names: dict[str, Any] = {}
    for number, file in enumerate(reversed(files)):
        call = f"called_{number - 1}()" if number else "{}['x']"
        code = compile(f"def called_{number}():\n    return {call}\n", str(file), "exec")
        exec(code, names)
    with pytest.raises(KeyError) as caught:
        names[f"called_{len(files) - 1}"]()
    return caught.value


def test_the_last_place_in_somebodys_code_is_named(tmp_path: Path) -> None:
    """Not ours, nor the standard library's, though packages may lie in the folder beside ours."""
    ours, standard = Path(exporter.__file__), Path(json.__file__)
    beside = ours.parents[3] / "somebodys_package/net.py"
    for theirs in (tmp_path / "net.py", beside):
        told = exporter.where_raised(raised_in(ours, theirs, ours, standard))
        assert told is not None and f"{str(theirs)!r}, line 2, in 'called_2'" in told


def test_no_more_than_a_few_lines_of_an_error_are_told() -> None:
    said = exporter.where_raised(RuntimeError("one\n  two\n  ^~~\n\nthree\nfour\nfive"))
    assert said == "two\nthree\nfour", "the first line is the message, arrows are left out"
    assert exporter.where_raised(RuntimeError("one")) is None


@pytest.fixture
def torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchvision that is installed and does not load."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('no operator nms')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)


@pytest.mark.usefixtures("torchvision")
def test_the_package_that_is_broken_is_named(answer: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "own_looking.py").write_text(
        "def network():\n"
        "    try:\n"
        "        import torchvision\n"
        "    except RuntimeError as error:\n"
        "        raise ModuleNotFoundError('requirements') from error\n"
    )
    said = answer(module="own_looking", name="network")
    assert said["kind"] == TargetError.__name__
    assert "torchvision does not load (RuntimeError: no operator nms)" in said["message"]
    assert "pip uninstall torchvision" in said["hint"]


@pytest.mark.usefixtures("torchvision")
def test_a_broken_package_is_not_blamed_for_the_errors_of_others() -> None:
    assert exporter.broken_companion(ValueError("something else")) is None


@pytest.mark.usefixtures("torchvision")
def test_doctor_is_told_what_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "standin_failures.py").write_text(
        "from tilewright.models.exported import exporter\n"
        "exporter.PACKAGES = ('json', 'torchvision', 'nowhere')\n"
        "print('noise', file=__import__('sys').stderr)\n"
        "exporter.print_faults()\n"
    )
    monkeypatch.setattr(conversion, "EXPORTER", "standin_failures")
    monkeypatch.setattr(conversion, "find_spec", lambda name: True)
    assert conversion.broken_packages() == {"torchvision": "RuntimeError: no operator nms"}
    (tmp_path / "standin_failures.py").write_text("import os; os._exit(3)")
    assert "exit code 3" in conversion.broken_packages()["torch"]
