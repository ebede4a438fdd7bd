"""The exporter itself, with PyTorch and transformers where they are installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.networks.onnx_models import reference
from tilewright.graph.evaluate import run_graph
from tilewright.models import ModelOptions
from tilewright.models.exported.conversion import torch_request, transformer_request
from tilewright.models.loading import load_model
from tilewright.models.onnx_file import read_onnx

TINY = {
    "bert": "bert[layers=1,hidden=64,sequence=8,vocabulary=50]",
    "gpt2": "gpt2[layers=1,hidden=64,sequence=8,vocabulary=50]",
    "roberta": "roberta[layers=1,hidden=64,sequence=8,vocabulary=50]",
    "vit": "vit[layers=1,hidden=64,image=16,patch=8,classes=5]",
    "convnext": "convnext[depths=1x1,widths=8x16,image=32,classes=5]",
    "resnet": "resnet[depths=1x1,widths=16x32,embedding=8,image=32,classes=5]",
}
CODE = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 5)

    def forward(self, x, scale=None):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))

def tokens():
    module = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 3))
    return module, torch.zeros(1, 6, dtype=torch.long)

def program():
    return torch.export.export(Network(), (torch.zeros(1, 3, 8, 8),))

number = 3
"""


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, loaded by the first test that needs it."""
    pytest.importorskip("onnxscript")
    found = pytest.importorskip("torch")
    found.set_num_threads(1)
    return found


@pytest.fixture
def exporter(torch: Any) -> Any:
    from tilewright.models.exported import exporter

    return exporter


def agrees(torch: Any, exporter: Any, folder: Path, request: Mapping[str, Any]) -> None:
    """PyTorch, ONNX Runtime and our graph give the same."""
    program = exporter.traced(torch, request)
    assert exporter.main(folder, request) == 0
    path = folder / "model.onnx"
    model = load_model(read_onnx(path), "test")
    generator = np.random.default_rng(1)
    feed = {
        name: generator.integers(0, 9, kind.shape)
        if kind.dtype == "int64"
        else generator.standard_normal(kind.shape, np.float32)
        for name, kind in model.inputs.items()
    }
    assert not [node.name for node in model.graph.nodes if node.operator == "opaque"]
    found = program.module()(**{name: torch.from_numpy(array) for name, array in feed.items()})
    listed = found if isinstance(found, tuple) else (found,)
    ours, theirs = run_graph(model.graph, feed), reference(path, feed)
    for output, tensor in zip(model.outputs, listed, strict=True):
        wanted = tensor.detach().numpy()
        assert wanted.std() > 1e-3
        for array in (ours[output], theirs[output]):
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_an_architecture_agrees_with_torch(
    name: str, torch: Any, exporter: Any, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    _, request = transformer_request(TINY[name], ModelOptions(batch=2, seed=3))
    agrees(torch, exporter, tmp_path, {**request.content, "argument": name})


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the user's own code in it."""
    (tmp_path / "own_networks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)
    return tmp_path


def request_of(name: str, **options: Any) -> dict[str, Any]:
    _, request = torch_request(f"own_networks:{name}", ModelOptions(**options))
    return {**request.content, "argument": name}


def test_a_users_module_agrees_with_torch(torch: Any, exporter: Any, mine: Path) -> None:
    agrees(torch, exporter, mine, request_of("Network", shapes={"x": (2, 3, 8, 8)}))


def test_examples_give_shapes_and_types(torch: Any, exporter: Any, mine: Path) -> None:
    program = exporter.traced(torch, request_of("tokens", batch=4))
    _, keywords = program.example_inputs
    assert {name: (tuple(t.shape), t.dtype) for name, t in keywords.items()} == {
        "input": ((4, 6), torch.int64)
    }
    saved = mine / "net.pt2"
    torch.export.save(exporter.traced(torch, request_of("program")), saved)
    again = exporter.traced(torch, {"kind": "program", "path": str(saved)})
    assert again.module()(torch.zeros(1, 3, 8, 8)).shape == (1, 5)
