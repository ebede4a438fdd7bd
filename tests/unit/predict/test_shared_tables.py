"""What other people measured, where it is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.core.events import discard
from tilewright.predict.evaluation import EvaluateRequest
from tilewright.predict.tables import evaluate_table

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def shared(name: str) -> Path:
    """The file, or the test is skipped and says so."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the shared data {name} is not here")
    return path


def test_layer_norm_on_a_gpu_that_is_left_out() -> None:
    table, specs = shared("gpu_ln_neusight.parquet"), shared("gpu_specs_neusight.json")
    asked = EvaluateRequest(family="layer_norm", split="device", specs=specs)
    found = evaluate_table(table, asked, discard, threads=1).result
    rows = [row for row in found.rows if row.group != "all"]
    assert len(rows) == 5 and sum(row.n for row in rows) == 7000
    assert sum(row.mape for row in rows) / 5 < 0.2
