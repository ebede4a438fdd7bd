"""Comparisons of several models, without an engine."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tilewright.core.results import CompareRow
from tilewright.deploy.comparing import Comparer
from tilewright.models import ModelOptions

pytestmark = pytest.mark.regression


def test_models_of_one_name_are_told_apart_and_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network and its artifact, say: the mean was that of one of them."""
    speedups = {"zoo:mlp": 0.5, "out/mlp": 2.0, "other/mlp": 4.0}

    def compared(_self: Any, model: str, _options: Any, _skipped: Any) -> list[Any]:
        return [
            CompareRow(
                model="mlp",
                peer="onnxruntime",
                precision="fp32",
                threads=1,
                latency_s=1.0,
                peer_latency_s=speedups[model],
                speedup=speedups[model],
                max_abs_error=0.0,
                max_rel_error=0.0,
                latency_spread=0.0,
                peer_spread=0.0,
            )
        ]

    monkeypatch.setattr(Comparer, "_compare", compared)
    comparer = Comparer(
        placement=cast("Any", None),
        store=cast("Any", None),
        events=lambda _event: None,
        seed=0,
        peers=("onnxruntime",),
        settings="best",
        rounds=1,
    )
    found = comparer.run([*speedups, "out/mlp"], ModelOptions())
    assert [row.model for row in found.rows] == [
        "mlp",
        "mlp (out/mlp)",
        "mlp (other/mlp)",
        "mlp (out/mlp, 2)",
    ]
    assert found.geomean_speedup == pytest.approx((0.5 * 2.0 * 4.0 * 2.0) ** 0.25)
