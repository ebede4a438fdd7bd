"""Timing in turn, and the speed-ups that come of it. The times are made up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from math import comb
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.budget import Budget, Limit
from tilewright.core.timings import CONFIDENCE, Timing, interval_of_median, speedup
from tilewright.measure.network_timing import Rounds, Runner, time_together

pytestmark = pytest.mark.regression


def timing(*rounds: Sequence[float]) -> Timing:
    return Timing(rounds_s=tuple(tuple(samples) for samples in rounds))


def runner(seconds: Iterable[float], log: list[str] | None = None, name: str = "") -> Runner:
    """Takes so many seconds in the first, the second, … round, after a look at how long it is."""
    left = chain([0.1], seconds)

    def run(repeats: int, warmup: int) -> list[float]:
        if log is not None:
            log.append(name)
        return [next(left)] * repeats

    return run


def test_runners_take_turns() -> None:
    log: list[str] = []
    timings = time_together(
        {"a": runner(repeat(0.1), log, "a"), "b": runner(repeat(0.02), log, "b")}, Rounds(count=3)
    )
    assert log[:2] == ["a", "b"]
    turns = log[2:]
    assert all(one != other for one, other in zip(turns, turns[1:], strict=False))
    assert turns.count("a") == turns.count("b") == 3
    assert timings["a"].latency_s == pytest.approx(0.1)
    assert [len(samples) for samples in timings["a"].rounds_s] == [6, 6, 6]


def test_slow_networks_run_a_few_times_only() -> None:
    asked: list[int] = []

    def run(repeats: int, warmup: int) -> list[float]:
        asked.append(repeats)
        return [5.0] * repeats

    time_together({"a": run}, Rounds(count=2))
    assert max(asked) == 2


STEADY, JUMPY = [0.1], [0.1, 0.1, 0.13, 0.1, 0.1]


@pytest.mark.parametrize(
    ("seconds", "spare_s", "rounds"),
    [
        (STEADY, 1e9, 5),
        (JUMPY, 0.0, 5),
        (JUMPY, 1e9, 15),
    ],
)
def test_rounds_that_vary_are_repeated_while_there_is_time(
    seconds: list[float], spare_s: float, rounds: int
) -> None:
    timings = time_together(
        {"a": runner(repeat(0.1)), "b": runner(chain.from_iterable(repeat(seconds)))},
        Rounds(budget=Budget(Limit(seconds=spare_s), clock=lambda: 0.0)),
    )
    assert {len(found.rounds_s) for found in timings.values()} == {rounds}


def test_median_spread_and_variation() -> None:
    found = timing((1.0, 1.0, 1.0, 100.0), (1.0, 1.0, 1.0, 1.0))
    assert (found.latency_s, found.spread, found.variation) == (1.0, 0.0, 0.0)
    assert timing((1.0,), (2.0,)).spread == pytest.approx(1 / 1.5)
    assert timing((2.0,)).spread == timing((2.0,)).variation == 0.0
    # one round of five is a fifth slower: hidden from the quartiles of all samples
    jumpy = timing(*[(1.0, 1.0)] * 4, (1.2, 1.2))
    assert jumpy.spread == 0.0 and jumpy.variation == pytest.approx(0.2)


def test_a_drift_that_hits_both_widens_no_speedup() -> None:
    drift = (1.0, 1.3, 0.9, 1.5, 1.1)
    ours, theirs = timing(*[(s,) for s in drift]), timing(*[(1.2 * s,) for s in drift])
    found = ours.speedup_over(theirs)
    assert found.value == found.low == found.high == pytest.approx(1.2)


def test_what_hits_one_alone_widens_the_claim() -> None:
    ours, theirs = timing(*[(1.0,)] * 5), timing((1.1,), (1.3,), (1.2,), (1.5,), (1.2,))
    found = ours.speedup_over(theirs)
    assert (found.low, found.value, found.high) == pytest.approx((1.1, 1.2, 1.5))
    one = timing((1.0, 1.0)).speedup_over(timing((2.0, 2.0)))
    assert (one.value, one.low, one.high) == (2.0, None, None), "one round has no interval"


rounds_s = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=15)


@given(rounds_s, st.randoms(use_true_random=False))
def test_a_speedup_lies_in_its_interval(seconds: list[float], random) -> None:
    others = [random.uniform(1e-6, 1.0) for _ in seconds]
    found = speedup(ours=[[s] for s in seconds], theirs=[[s] for s in others])
    assert found.value == pytest.approx(median(others) / median(seconds))
    assert found.low is not None and found.high is not None
    assert found.low <= found.value <= found.high


@given(st.integers(2, 30))
def test_the_interval_is_the_closest_that_is_sure_enough(count: int) -> None:
    low, high = interval_of_median([float(n) for n in range(count)])
    left_out = int(low)
    assert high == count - 1 - left_out, "as many from either end"

    def sureness(out: int) -> float:
        return 1 - 2 * sum(comb(count, below) for below in range(out + 1)) / 2**count

    assert left_out == 0 or sureness(left_out) >= CONFIDENCE
    assert sureness(left_out + 1) < CONFIDENCE
