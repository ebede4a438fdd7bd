"""The README's examples run as written, on a small network in the place of theirs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from helpers.commands.fenced_blocks import Block, Walk, blocks, run_block

ROOT = Path(__file__).resolve().parents[2]
SAVE = 'np.save("{name}.npy", {value})\n'
ONLY_TVM = 'import sys\nassert not [m for m in sys.modules if m.startswith("tilewright")]\n'


def example(name: str) -> str:
    """The code of one named example."""
    (found,) = [block for block in blocks(ROOT / "README.md") if block.name == name]
    assert found.language == "python"
    return found.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact where the README's main command puts it."""
    path = tmp_path_factory.mktemp("readme")
    command = "tilewright optimize zoo:mlp --budget 0 --out tilewright-out/resnet18"
    run(path, command, language="bash")
    return path


def run(folder: Path, code: str, *, language: str = "python") -> str:
    """Run code in the folder."""
    return run_block(Block(language=language, code=code, name=None), folder, folder / "readme.db")


@pytest.mark.slow
@pytest.mark.usefixtures("all_cores")
def test_both_ways_to_run_an_artifact_agree(folder: Path) -> None:
    plain = example("plain TVM")
    assert written(plain) == 10, "the README promises ten lines"
    run(folder, plain + ONLY_TVM + SAVE.format(name="plain", value="result.numpy()"))
    comfortable = example("load")
    value = 'network(np.ones(shape, dtype="float32"))'
    assert "(1, 10)" in run(folder, comfortable + SAVE.format(name="loaded", value=value))
    result = np.load(folder / "plain.npy")
    assert np.array_equal(result, np.load(folder / "loaded.npy"))
    assert np.allclose(result, reference(), rtol=1e-4, atol=1e-5)


def reference() -> np.ndarray:
    """What ONNX Runtime gives for ones."""
    import onnxruntime

    from tilewright.models import zoo

    model = zoo.build("mlp").SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"input": np.ones((1, 784), dtype=np.float32)})[0])


@pytest.mark.slow
def test_the_python_session(folder: Path) -> None:
    code = example("session")
    assert written(code) == 4
    small = code.replace("zoo:resnet50", "zoo:mlp").replace('"10m"', '"0"')
    assert small != code
    more = "assert result.result.model and result._repr_html_()\nprint(result.load().outputs)\n"
    assert "logits" in run(folder, small + more)
    assert (folder / "out" / "model.so").is_file()


def test_the_network_in_one_line(folder: Path) -> None:
    code = example("compile")
    assert written(code) == 4
    value = 'network(np.ones((1, 784), dtype="float32"))'
    assert "(1, 10)" in run(folder, code + SAVE.format(name="compiled", value=value))
    assert np.allclose(np.load(folder / "compiled.npy"), reference(), rtol=1e-4, atol=1e-5)


def test_links_lead_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    dead = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#\s]+)", without_code(document.read_text()))
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert not dead


def without_code(text: str) -> str:
    """The text less its fenced blocks and code spans."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


REFERENCE = blocks(ROOT / "docs" / "reference" / "python.md")


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_the_python_reference(tmp_path: Path) -> None:
    assert len(Walk(REFERENCE, tmp_path, at_once=True).to_the_end()) == len(REFERENCE)


def written(code: str) -> int:
    """Lines that are not blank."""
    return sum(bool(line.strip()) for line in code.splitlines())
