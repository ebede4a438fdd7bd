"""Times of a task: of one call, and of all calls together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.records.report_results import CONV

ALONE = replace(CONV, count=3, latency_s=0.001, in_place_s=None)


def test_one_call_is_told_alone_where_it_was_timed_so() -> None:
    """Kernels are compared by their times alone; those in place depend on the network."""
    assert ALONE.call_s == 0.001
    assert replace(ALONE, in_place_s=0.002).call_s == 0.001
    assert replace(ALONE, latency_s=None, in_place_s=0.002).call_s == 0.002
    assert replace(ALONE, latency_s=None).call_s is None


def test_all_calls_are_told_in_place_where_the_network_ran() -> None:
    """What tasks take of a network is their time within it."""
    assert ALONE.calls_s == pytest.approx(0.003)
    assert replace(ALONE, in_place_s=0.002).calls_s == pytest.approx(0.006)
    assert replace(ALONE, latency_s=None, in_place_s=0.002).calls_s == pytest.approx(0.006)
    assert replace(ALONE, latency_s=None).calls_s is None
    assert replace(ALONE, in_place_s=0.0).calls_s == 0.0, "a time of zero is a time"
