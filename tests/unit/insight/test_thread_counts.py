"""Five numbers of threads at most, and never worse than all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.insight.studies import best_count, counts_to_measure


@given(st.integers(1, 512))
def test_all_of_them_come_first_and_five_are_enough(most: int) -> None:
    counts = counts_to_measure(most)
    assert counts[0] == most
    assert 1 <= len(counts) <= 5
    assert list(counts) == sorted(set(counts), reverse=True)
    assert counts[-1] >= 1


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-6, 1e3), min_size=1))
def test_the_choice_is_never_worse_than_all(times_s: dict[int, float]) -> None:
    assert times_s[best_count(times_s)] <= times_s[max(times_s)]


def test_equal_times_take_fewer_threads_and_none_are_refused() -> None:
    assert best_count({4: 1.0, 2: 1.0, 8: 1.5}) == 2
    with pytest.raises(ValueError, match="0 threads"):
        counts_to_measure(0)
