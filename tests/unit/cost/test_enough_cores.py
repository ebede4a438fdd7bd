"""From how many cores on more do not pay, alone and beside neighbours."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cost.enough_cores import OnCores, enough_cores

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
SCALE = 3e11


def on_cores(serial_s: float, parallel_s: float, streamed: float) -> OnCores:
    """A part that one core does, and one that all share."""
    return OnCores(
        seconds={cores: serial_s + parallel_s / cores for cores in COUNTS},
        streamed_bytes=dict.fromkeys(COUNTS, streamed),
        scale=SCALE,
    )


KERNELS = st.builds(on_cores, st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-1), st.floats(1e3, 1e9))
GAINS, OTHERS = st.floats(0.01, 1.0), st.floats(0.0, 1e12)


@given(KERNELS, GAINS, OTHERS)
def test_fewer_take_longer_than_allowed_and_these_do_not(
    kernel: OnCores, gain: float, others: float
) -> None:
    times, found = kernel.beside(others), kernel.enough(others, gain)
    assert times[found] <= (1 + gain) * min(times.values())
    assert all(times[n] > (1 + gain) * min(times.values()) for n in COUNTS if n < found)


@given(KERNELS, GAINS, OTHERS, OTHERS)
def test_beside_more_neighbours_no_more_cores_are_enough(
    kernel: OnCores, gain: float, some: float, more: float
) -> None:
    """What neighbours cost is the same on any number of cores, so that others matter less."""
    assert kernel.enough(some + more, gain) <= kernel.enough(some, gain)


@given(st.floats(0.0, 1e-3), st.floats(1e-6, 1e-1), GAINS)
def test_alone_it_is_where_the_law_of_amdahl_has_it(
    serial_s: float, parallel_s: float, gain: float
) -> None:
    kernel = on_cores(serial_s, parallel_s, 0.0)
    least = (serial_s + parallel_s / COUNTS[-1]) * (1 + gain)
    wanted = next(n for n in COUNTS if serial_s + parallel_s / n <= least)
    assert kernel.enough(1e12, gain) == wanted, "what streams nothing knows no neighbours"


@given(KERNELS, st.sampled_from(COUNTS), st.floats(1e8, 1e11), st.floats(0.01, 2.0))
def test_one_neighbour_more_than_it_bears_is_too_many(
    kernel: OnCores, cores: int, each: float, more: float
) -> None:
    borne = kernel.borne(cores, each, more)
    most = (1 + more) * kernel.seconds[cores]
    assert kernel.beside(borne * each)[cores] == pytest.approx(most)
    assert kernel.beside((borne + 1) * each)[cores] > most * (1 - 1e-9)


def test_where_nothing_is_known_of_neighbours_there_are_none() -> None:
    kernel = OnCores(seconds={1: 2e-6, 2: 1e-6}, streamed_bytes={1: 9.0, 2: 9.0}, scale=None)
    assert kernel.beside(1e12) == kernel.seconds
    assert kernel.borne(2, 1e12, 0.1) == inf
    assert enough_cores({4: 0.0, 2: 0.0, 8: 0.0}, 0.1) == 2


@given(KERNELS, GAINS, OTHERS, st.floats(1.0, 1.5))
def test_intervals_hold_the_turning_point(
    kernel: OnCores, gain: float, others: float, wide: float
) -> None:
    reach = {cores: wide ** (cores / 4) for cores in COUNTS}
    low, high = replace(kernel, reach=reach).between(others, gain)
    assert low <= kernel.enough(others, gain) <= high
    assert kernel.between(others, gain) == (kernel.enough(others, gain),) * 2


@given(KERNELS, OTHERS, st.floats(0.1, 5.0))
def test_a_scale_says_again_what_it_was_fitted_to(
    kernel: OnCores, others: float, more: float
) -> None:
    found = kernel.fitted(1, others, (1 + more) * kernel.seconds[1])
    if others > 1e6:
        assert found.beside(others)[1] == pytest.approx((1 + more) * kernel.seconds[1])
    assert kernel.fitted(1, others, 0.9 * kernel.seconds[1]).beside(others) == kernel.seconds
    assert kernel.only([2, 16]).seconds.keys() == {2, 16}
