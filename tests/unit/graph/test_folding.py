"""What may be computed ahead."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.clean import simplify
from tilewright.graph.clean.simplify import FOLDED_BYTES, FoldingAllowance
from tilewright.graph.network import TensorType

pytestmark = pytest.mark.regression


def result(size_bytes: int) -> TensorType:
    return TensorType((size_bytes,), "uint8")


def test_results_stay_small_or_no_larger_than_their_sources() -> None:
    allowance = FoldingAllowance(())
    small, large = np.zeros(8, np.uint8), np.zeros(2 * FOLDED_BYTES, np.uint8)
    assert allowance.grants(result(FOLDED_BYTES), [small], 0)
    assert not allowance.grants(result(FOLDED_BYTES + 1), [small], 0)
    assert allowance.grants(result(2 * FOLDED_BYTES), [large], 0)


def test_all_results_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplify, "MOST_FOLDED_BYTES", 100)
    weights = [np.zeros(50, np.uint8)]
    allowance = FoldingAllowance(weights)
    assert [allowance.grants(result(90), weights, 0) for _ in range(3)] == [True, True, False]
    assert allowance.grants(result(20), weights, 0)


def test_work_is_limited() -> None:
    allowance = FoldingAllowance(())
    assert allowance.grants(result(1), [], simplify.MOST_FOLDED_FLOP)
    assert not allowance.grants(result(1), [], 1)
