"""What a budget keeps back for the end."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tilewright.deploy.reserve import FEW, FULL, PLAIN, Reserve

SMALL = Reserve(tasks=20, weight_bytes=100_000_000, budget_s=600.0)


def test_who_races_depends_on_the_time_there_is() -> None:
    assert SMALL.line_up(with_graph=True) is FULL
    assert SMALL.line_up(with_graph=False) is PLAIN
    assert replace(SMALL, budget_s=60.0).line_up(with_graph=True) is FEW
    assert replace(SMALL, budget_s=inf).line_up(with_graph=True) is FULL
    assert SMALL.affords_graph and not replace(SMALL, budget_s=60.0).affords_graph


@pytest.mark.parametrize("line_up", [FULL, FEW, PLAIN])
def test_the_end_takes_longer_for_larger_networks(line_up) -> None:
    assert SMALL.all_s(line_up) < replace(SMALL, tasks=40).all_s(line_up)
    assert SMALL.all_s(line_up) < replace(SMALL, weight_bytes=10**9).all_s(line_up)
    assert SMALL.all_s(PLAIN) <= SMALL.all_s(FEW) < SMALL.all_s(FULL)


def test_second_looks_take_no_more_than_their_part() -> None:
    assert replace(SMALL, budget_s=10.0).looks_s(FULL) < 2.0
    assert replace(SMALL, budget_s=inf).looks_s(FULL) == SMALL.looks_s(FULL) == 20.0


def test_networks_compiled_side_by_side_take_less() -> None:
    assert replace(SMALL, cpus=2).all_s(FULL) < SMALL.all_s(FULL)
    assert replace(SMALL, cpus=2).heat_s == SMALL.heat_s, "a challenger comes alone"


def test_kernels_that_build_quickly_leave_more_to_search_with() -> None:
    for line_up in (FULL, FEW, PLAIN):
        assert replace(SMALL, build_s=0.05).all_s(line_up) < SMALL.all_s(line_up)


def test_a_short_budget_races_shorter_rounds() -> None:
    assert replace(SMALL, budget_s=10.0).round_s < replace(SMALL, budget_s=100.0).round_s
    assert SMALL.round_s == replace(SMALL, budget_s=inf).round_s
    assert replace(SMALL, budget_s=0.0).round_s > 0.0
