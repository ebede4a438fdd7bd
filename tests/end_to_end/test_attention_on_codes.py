"""A layer of an encoder as ONNX Runtime's `quantize_static` writes it: its attention is one kernel,
on codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright
from helpers.commands.command_line import reference
from helpers.networks.quantized_encoder import quantized
from tilewright.core.errors import NegativeVerdict


def test_attention_is_one_kernel_on_codes(tmp_path: Path) -> None:
    """No zero point is that of the type; results differ by a code at the most. Where less is
    allowed, no task is to blame."""
    file, drawn = quantized(tmp_path), np.random.default_rng(9).standard_normal((1, 17, 32))
    x = drawn.astype(np.float32)
    with tilewright.open(db="memory:") as session:
        session.optimize(file, budget=0, out=tmp_path / "out")
        with pytest.raises(NegativeVerdict, match="rounding in codes of eight bits can cause"):
            session.optimize(file, budget=0, out=tmp_path / "exact", max_error=1e-9)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "attention_int8" in str(manifest) and "batch_matmul_int8" not in str(manifest)
    found, wanted = np.asarray(tilewright.load(tmp_path / "out")(x)), reference(file, {"x": x})["y"]
    code = np.diff(np.unique(wanted)).min()
    assert np.abs(found - wanted).max() <= 1.01 * code
    assert len(np.unique(wanted)) > 50
