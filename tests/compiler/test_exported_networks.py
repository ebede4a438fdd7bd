"""Architectures of transformers, compiled, against PyTorch itself, where both are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.networks.small_networks import compiled_outputs
from tilewright.models import ModelOptions
from tilewright.models.exported import exporter
from tilewright.models.exported.conversion import transformer_request
from tilewright.models.loading import load

TINY = [
    "bert[layers=1,hidden=64,sequence=8,vocabulary=50]",
    "gpt2[layers=1,hidden=64,sequence=8,vocabulary=50]",
    "roberta[layers=1,hidden=64,sequence=8,vocabulary=50]",
    "vit[layers=1,hidden=64,image=16,patch=8,classes=5]",
    "convnext[depths=1x1,widths=8x16,image=32,classes=5]",
    "resnet[depths=1x1,widths=16x32,embedding=8,image=32,classes=5]",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", TINY)
def test_a_compiled_architecture_agrees_with_torch(text: str, tmp_path: Path) -> None:
    for package in ("onnxscript", "transformers"):
        pytest.importorskip(package)
    torch: Any = pytest.importorskip("torch")
    _, made = transformer_request(text, ModelOptions(batch=2))
    request = {**made.content, "argument": text}
    assert exporter.main(tmp_path, request) == 0
    model = load(str(tmp_path / "model.onnx"))
    generator = np.random.default_rng(0)
    feed = {
        name: generator.integers(0, 50, kind.shape)
        if kind.dtype == "int64"
        else generator.standard_normal(kind.shape, np.float32)
        for name, kind in model.inputs.items()
    }
    module = exporter.traced(torch, request).module()
    wanted = module(**{name: torch.from_numpy(array) for name, array in feed.items()})
    _, (ours,) = compiled_outputs(model.graph, feed, runs=1)
    for array, tensor in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(array, tensor.detach().numpy(), rtol=1e-4, atol=1e-5)
