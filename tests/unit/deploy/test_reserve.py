"""What a budget keeps back for the end."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tilewright.deploy.reserve import FEW, FULL, PLAIN, TYPES, Reserve
from tilewright.measure.base import TimeSpent

SMALL = Reserve(tasks=20, weight_bytes=100_000_000, budget_s=600.0)


def test_who_races_depends_on_the_time_there_is() -> None:
    assert SMALL.line_up(with_graph=True) is FULL
    assert SMALL.line_up(with_graph=False) is PLAIN
    assert replace(SMALL, budget_s=60.0).line_up(with_graph=True) is FEW
    assert replace(SMALL, budget_s=inf).line_up(with_graph=True) is FULL
    assert replace(SMALL, budget_s=60.0).line_up(with_graph=True, mixed=True) is TYPES
    assert SMALL.line_up(with_graph=True, mixed=True) is TYPES
    assert SMALL.affords_graph and not replace(SMALL, budget_s=60.0).affords_graph


@pytest.mark.parametrize("line_up", [FULL, FEW, PLAIN])
def test_the_end_takes_longer_for_larger_networks(line_up) -> None:
    assert SMALL.all_s(line_up) < replace(SMALL, tasks=40).all_s(line_up)
    assert SMALL.all_s(line_up) < replace(SMALL, weight_bytes=10**9).all_s(line_up)
    assert SMALL.all_s(PLAIN) <= SMALL.all_s(FEW) < SMALL.all_s(FULL)


def test_what_the_end_takes_adds_up() -> None:
    """Twenty kernels of 0.16 s and 100 MB of weights at 130 MB a second are 3.97 s for each network
    that is compiled. A kernel is checked in 0.19 s. A race begins after 4 s and has five rounds of
    0.6 s for each network and the reference. A challenger takes 12 s and its own compiling."""
    compile_s, check_all_s = 3.2 + 1 / 1.3, 20 * 0.19
    heat_s = 12 + compile_s
    assert SMALL.heat_s == pytest.approx(heat_s)
    for line_up, race_s, end_s in (
        (PLAIN, 3 * 3.0, 2 * compile_s + check_all_s),
        (FEW, 4 * 3.0, 3 * compile_s + 2 * check_all_s + heat_s),
        (TYPES, 5 * 3.0, 4 * compile_s + 3 * check_all_s + heat_s),
        (FULL, 6 * 3.0, 5 * compile_s + 3 * check_all_s + heat_s),
    ):
        assert SMALL.all_s(line_up) == pytest.approx(4 + race_s + end_s)
    beside_s = 0.65 * (5 * compile_s + 3 * check_all_s) + heat_s
    assert replace(SMALL, cpus=2).all_s(FULL) == pytest.approx(4 + 18 + beside_s)
    alone = replace(FULL, networks=1)
    assert replace(SMALL, cpus=2).all_s(alone) == pytest.approx(
        4 + 6 + compile_s + 0.65 * 3 * check_all_s + heat_s
    ), "a single network has none to be compiled beside"


def test_where_the_time_begins_to_suffice() -> None:
    """A graph search pays from three times its end on, which with second looks of 8 % is 203 s; a
    full race may take half of the budget, which begins at 164 s."""
    assert not replace(SMALL, budget_s=202.0).affords_graph
    assert replace(SMALL, budget_s=204.0).affords_graph
    assert replace(SMALL, budget_s=160.0).line_up(with_graph=True) is FEW
    assert replace(SMALL, budget_s=170.0).line_up(with_graph=True) is FULL


def test_second_looks_take_no_more_than_their_part() -> None:
    assert replace(SMALL, budget_s=10.0).looks_s(FULL) == pytest.approx(0.8)
    assert replace(SMALL, budget_s=inf).looks_s(FULL) == SMALL.looks_s(FULL) == 20.0


def test_networks_compiled_side_by_side_take_less() -> None:
    assert replace(SMALL, cpus=2).all_s(FULL) < SMALL.all_s(FULL)
    assert replace(SMALL, cpus=2).heat_s == SMALL.heat_s, "a challenger comes alone"


def test_kernels_that_build_quickly_leave_more_to_search_with() -> None:
    for line_up in (FULL, FEW, PLAIN):
        assert replace(SMALL, build_s=0.05).all_s(line_up) < SMALL.all_s(line_up)


def test_what_many_builders_make_side_by_side_takes_less() -> None:
    """Sixteen kernels that take 2 s each are built by four in 8 s, by sixteen in 2 s."""
    here = replace(SMALL, cpus=16)
    four = here.corrected(TimeSpent(build_s=8.0, kernels=16, kernels_s=32.0))
    sixteen = here.corrected(TimeSpent(build_s=2.0, kernels=16, kernels_s=32.0))
    assert four.build_s == sixteen.build_s == 2.0
    assert (four.side_by_side, sixteen.side_by_side) == pytest.approx((1.3 / 4, 1.3 / 16))
    assert sixteen.all_s(PLAIN) < four.all_s(PLAIN)
    alone = SMALL.corrected(TimeSpent(build_s=32.0, kernels=16, kernels_s=32.0))
    assert alone.side_by_side == 1.0
    at_once = SMALL.corrected(TimeSpent(build_s=0.1, kernels=16, kernels_s=0.0))
    assert (at_once.build_s, at_once.side_by_side) == (0.0, SMALL.side_by_side)


def test_a_short_budget_races_shorter_rounds() -> None:
    assert replace(SMALL, budget_s=10.0).round_s < replace(SMALL, budget_s=100.0).round_s
    assert SMALL.round_s == replace(SMALL, budget_s=inf).round_s
    assert replace(SMALL, budget_s=100.0).round_s == pytest.approx(0.35)
    assert (SMALL.round_s, replace(SMALL, budget_s=0.0).round_s) == (0.6, 0.2)
