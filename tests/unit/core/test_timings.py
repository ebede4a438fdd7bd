"""Speed-ups of settings that were timed on two occasions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.timings import speedup_apart

SAMPLES = st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=12)


@given(SAMPLES, SAMPLES)
def test_the_interval_holds_the_ratio_of_medians(ours: list[float], theirs: list[float]) -> None:
    found = speedup_apart(ours=ours, theirs=theirs)
    if min(len(ours), len(theirs)) < 2:
        assert found.low is None and found.high is None
        return
    assert found.low is not None and found.high is not None
    assert found.low <= found.value * (1 + 1e-12) and found.value <= found.high * (1 + 1e-12)
    assert found.low >= min(theirs) / max(ours) and found.high <= max(theirs) / min(ours)


@given(SAMPLES, SAMPLES)
def test_the_other_way_round_it_is_the_inverse(ours: list[float], theirs: list[float]) -> None:
    one, other = (
        speedup_apart(ours=ours, theirs=theirs),
        speedup_apart(ours=theirs, theirs=ours),
    )
    assert abs(one.value * other.value - 1) < 1e-9
    if one.low is not None and other.high is not None:
        assert abs(one.low * other.high - 1) < 1e-9


def test_steady_samples_leave_no_doubt() -> None:
    found = speedup_apart(ours=[1e-3] * 5, theirs=[2e-3] * 5)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)
