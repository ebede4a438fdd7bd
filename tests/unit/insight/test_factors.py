"""What matters, and what sets two kernels apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.measuring import PLACEMENT
from helpers.records.predictor_kernels import PEAKS, SMALL, candidates, convolution, made_up_s, rows
from tilewright.insight.explaining import differences, exchange, influences
from tilewright.predict.collected import training_set
from tilewright.predict.family_models import fit_kernels
from tilewright.predict.kernel_features import kernel_table


def test_the_choice_that_decides_comes_first() -> None:
    settings = [{"tile": t, "order": o} for t in (1, 2, 4, 8) for o in ("rows", "tiles")]
    times = np.array([8.0 / s["tile"] * (1.05 if s["order"] == "rows" else 1.0) for s in settings])
    tile, order = influences(settings, times)
    assert (tile.name, order.name) == ("tile", "order")
    assert tile.importance > 0.9 > 0.1 > order.importance
    assert tile.rank_correlation == pytest.approx(-1.0, abs=0.03)
    assert order.rank_correlation is None
    assert tile.effects["1"] == pytest.approx(8.0)
    assert tile.importance + order.importance == pytest.approx(1.0)


def test_a_choice_that_never_varies_or_changes_nothing() -> None:
    (only,) = influences([{"a": 1, "b": 1}, {"a": 1, "b": 2}], np.array([1.0, 1.0]))
    assert (only.name, only.importance) == ("b", 0.0)


def test_a_choice_is_exchanged_while_the_others_stay() -> None:
    others = np.array([1.0, 3.0, 10.0, 2.0])[:, None]
    found = exchange(others * np.array([2.0, 1.0, 4.0]), np.array([0, 1, 2, 1]), ("a", "b", "c"))
    assert found["partial_dependence"] == pytest.approx({"a": 2.0, "b": 1.0, "c": 4.0})
    from_a, from_b, from_c = (0.5 + 0.5 + 1) / 4, (1 + 3) / 4, (0.5 + 0.75 + 0.75) / 4
    assert found["permutation_importance"] == pytest.approx((from_a + 2 * from_b + from_c) / 4)


def test_values_that_are_not_possible_everywhere_are_compared_where_they_are() -> None:
    slow = np.array([[100.0, 50.0, np.nan], [200.0, 100.0, np.nan]])
    fast = np.array([[np.nan, 1.0, 2.0], [np.nan, 3.0, 6.0]])
    found = exchange(np.concatenate([slow, fast]), np.array([0, 1, 1, 2]), (1, 2, 3))
    assert found["partial_dependence"]["2"] == 1.0
    assert (
        found["partial_dependence"]["1"] == found["partial_dependence"]["3"] == pytest.approx(2.0)
    )


def test_a_choice_without_an_alternative_says_nothing() -> None:
    found = exchange(np.array([[1.0, np.nan], [2.0, np.nan]]), np.array([0, 0]), ("a", "b"))
    assert (found["permutation_importance"], found["partial_dependence"]) == (0.0, {})


@given(
    own=st.lists(st.integers(0, 2), min_size=2, max_size=8),
    logs=st.lists(st.floats(-3, 3), min_size=24, max_size=24),
    scale=st.floats(1e-6, 1e6),
)
def test_exchanging_knows_no_unit(own: list[int], logs: list[float], scale: float) -> None:
    times = np.exp(np.array(logs).reshape(8, 3)[: len(own)])
    found = exchange(times, np.array(own), "abc")
    scaled = exchange(scale * times, np.array(own), "abc")
    assert found["permutation_importance"] >= 0
    assert min(found["partial_dependence"].values()) == 1.0
    assert scaled["permutation_importance"] == pytest.approx(
        found["permutation_importance"], abs=1e-9
    )
    assert scaled["partial_dependence"] == pytest.approx(found["partial_dependence"])


def test_the_parts_of_a_gap_add_up_to_it() -> None:
    model = fit_kernels(training_set(rows(), "conv2d", PLACEMENT, PEAKS), trees=SMALL)
    workload = convolution(16, 32, 14)
    ranked = sorted(candidates(workload, 8), key=lambda c: made_up_s(workload, c))
    table = kernel_table([(workload, ranked[-1]), (workload, ranked[0])], PLACEMENT, PEAKS)
    ratio, found = differences(model, table)
    times = model.predict(table).predicted
    assert ratio == pytest.approx(times[0] / times[1])
    assert ratio > 1
    assert sum(difference.share or 0.0 for difference in found) == pytest.approx(1.0, abs=0.05)
    assert any("tile_width" in d.fact or d.fact.startswith("schedule.") for d in found[:3])


def test_equal_kernels_differ_in_nothing() -> None:
    model = fit_kernels(training_set(rows(), "conv2d", PLACEMENT, PEAKS), trees=SMALL)
    workload = convolution(16, 32, 14)
    candidate = candidates(workload, 1)[0]
    ratio, found = differences(model, kernel_table([(workload, candidate)] * 2, PLACEMENT, PEAKS))
    assert ratio == 1.0
    assert [d.fact for d in found] == ["roofline time"]
