"""Demands in seconds: what makes them longer, and what does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.targets import threads_alone
from tilewright.cost.demand import CLOCK_HZ, LAUNCH_S, LEVELS, Demand, balance, seconds

AMOUNTS = st.floats(0, 1e12)
DEMANDS = st.builds(
    Demand,
    pieces=st.integers(1, 10_000),
    operations=AMOUNTS,
    per_cycle=st.floats(0.1, 4096),
    cycles=AMOUNTS,
    traffic=st.dictionaries(st.sampled_from(sorted(LEVELS)), AMOUNTS),
    launches=st.floats(0, 8),
    even=st.booleans(),
    own_traffic=st.booleans(),
    hidden=st.floats(0, 1),
)
THREADS = st.integers(1, 64)


def test_each_part_alone() -> None:
    two = threads_alone(2)
    cycles = Demand(pieces=2, cycles=2 * CLOCK_HZ, launches=0)
    assert seconds(cycles, two) == pytest.approx(1.0)
    assert seconds(replace(cycles, pieces=1), two) == pytest.approx(2.0), "one thread waits"
    assert seconds(replace(cycles, pieces=1, even=True), two) == pytest.approx(1.0)
    multiplied = Demand(pieces=2, operations=64 * CLOCK_HZ, per_cycle=32, launches=0)
    assert seconds(multiplied, two) == pytest.approx(1.0)
    read = Demand(pieces=1, traffic={"L3": 2 * LEVELS["L3"]}, launches=0)
    assert seconds(read, two) == pytest.approx(1.0)
    assert seconds(replace(read, own_traffic=True), two) == pytest.approx(2.0)
    assert seconds(Demand(pieces=1, launches=3), two) == pytest.approx(3 * LAUNCH_S)


def test_what_is_hidden_is_of_the_shorter() -> None:
    demand = Demand(pieces=1, cycles=3 * CLOCK_HZ, traffic={"memory": LEVELS["memory"]}, launches=0)
    one = threads_alone(1)
    assert seconds(demand, one) == pytest.approx(4.0)
    assert seconds(replace(demand, hidden=0.9), one) == pytest.approx(3.1)
    assert seconds(replace(demand, hidden=1.0), one) == pytest.approx(3.0)


@given(demand=DEMANDS, more=st.floats(1, 1e9), threads=THREADS)
def test_more_of_anything_never_takes_less(demand: Demand, more: float, threads: int) -> None:
    resources = threads_alone(threads)
    least = seconds(demand, resources)
    assert least >= demand.launches * LAUNCH_S
    for name in ("operations", "cycles", "launches"):
        grown = replace(demand, **{name: getattr(demand, name) + more})
        assert seconds(grown, resources) >= least * (1 - 1e-12)
    for level in LEVELS:
        grown = {**demand.traffic, level: demand.traffic.get(level, 0.0) + more}
        assert seconds(replace(demand, traffic=grown), resources) >= least * (1 - 1e-12)


@given(pieces=st.lists(st.integers(1, 1000), min_size=1), threads=THREADS)
def test_threads_are_never_more_than_busy(pieces: list[int], threads: int) -> None:
    found = balance(np.array(pieces, np.float64), threads_alone(threads))
    assert ((found > 0) & (found <= 1)).all()
    whole = np.array([count % threads == 0 for count in pieces])
    assert (found[whole] == 1).all()


@given(demand=DEMANDS, threads=THREADS)
def test_columns_say_what_numbers_say(demand: Demand, threads: int) -> None:
    resources = threads_alone(threads)
    columns = replace(
        demand,
        pieces=np.full(3, float(demand.pieces)),
        cycles=np.full(3, demand.cycles),
        traffic={level: np.full(3, moved) for level, moved in demand.traffic.items()},
    )
    assert np.array_equal(seconds(columns, resources), np.full(3, seconds(demand, resources)))
