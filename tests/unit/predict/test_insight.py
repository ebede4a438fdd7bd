"""What matters, where times jump, and what sets two kernels apart."""

from __future__ import annotations

import numpy as np
import pytest
from fake_measuring import DEVICE
from kernels import PEAKS, SMALL, candidates, convolution, made_up_s, rows

from tilewright.predict.collected import training_set
from tilewright.predict.insight import differences, influences, jumps
from tilewright.predict.kernel_facts import KernelTable, kernel_table
from tilewright.predict.kernel_models import fit_kernel_model


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


def test_jumps_are_where_a_cache_overflows_or_threads_idle() -> None:
    table = KernelTable(
        names=("schedule.balance", "schedule.tile_bytes_of_l1", "op.flop"),
        values=np.array([[1.0, -1.0, 5.0], [1.0, -0.2, 6.0], [0.6, 0.1, 7.0], [0.7, 0.4, 8.0]]),
        roof_s=np.ones(4),
    )
    found = jumps([8, 16, 17, 32], table, np.array([1.0, 2.0, 6.0, 12.0]), [1.0, 2.0, 2.0, 4.0])
    assert {(jump.value, jump.fact) for jump in found} == {
        (17, "schedule.balance"),
        (17, "schedule.tile_bytes_of_l1"),
    }
    assert all(jump.ratio == pytest.approx(3.0) for jump in found)


def test_the_parts_of_a_gap_add_up_to_it() -> None:
    model = fit_kernel_model(training_set(rows(), "conv2d", DEVICE, PEAKS), trees=SMALL)
    workload = convolution(16, 32, 14)
    ranked = sorted(candidates(workload, 8), key=lambda c: made_up_s(workload, c))
    table = kernel_table([(workload, ranked[-1]), (workload, ranked[0])], DEVICE, PEAKS)
    ratio, found = differences(model, table)
    times = model.times(table).latency_s
    assert ratio == pytest.approx(times[0] / times[1])
    assert ratio > 1
    assert sum(difference.share for difference in found) == pytest.approx(1.0, abs=0.05)
    assert any("tile_width" in d.fact or d.fact.startswith("schedule.") for d in found[:3])


def test_equal_kernels_differ_in_nothing() -> None:
    model = fit_kernel_model(training_set(rows(), "conv2d", DEVICE, PEAKS), trees=SMALL)
    workload = convolution(16, 32, 14)
    candidate = candidates(workload, 1)[0]
    ratio, found = differences(model, kernel_table([(workload, candidate)] * 2, DEVICE, PEAKS))
    assert ratio == 1.0
    assert [d.fact for d in found] == ["roofline time"]
