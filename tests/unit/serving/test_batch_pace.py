"""What each size of a batch takes by now, also those that do not run."""

from __future__ import annotations

import pytest

from tilewright.serving.batch_pace import BatchPace


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_sizes_that_do_not_run_are_known_by_those_that_do() -> None:
    pace = BatchPace({1: 0.01, 4: 0.02})
    told = [pace.note(4, 0.08) for _ in range(5)]
    assert told == [None, None, None, None, True] and pace.is_slow
    assert pace.expected_s(1) == pytest.approx(0.04) and pace.expected_s(4) == pytest.approx(0.08)
    told = [pace.note(1, 0.01) for _ in range(5)]
    assert told[-1] is False and not pace.is_slow, "it is fast again, by another size"
    assert pace.expected_s(4) == pytest.approx(0.02)


def test_what_is_too_slow_for_all_is_tried_again() -> None:
    clock = Clock()
    pace = BatchPace({1: 0.01}, clock)
    for _ in range(9):
        pace.note(1, 1.0)
    clock.now_s = 9.0
    assert pace.expected_s(1) == pytest.approx(1.0)
    clock.now_s = 11.0
    assert pace.expected_s(1) == pytest.approx(0.01) and not pace.is_slow
    assert pace.note(1, 0.01) is False, "whoever heard that it was slow hears the end of it"


def test_samples_of_long_runs_are_kept_longer() -> None:
    clock = Clock()
    pace = BatchPace({1: 1.0, 8: 4.0}, clock)
    for _ in range(5):
        clock.now_s += 12.0
        pace.note(8, 12.0)
    assert pace.expected_s(8) == pytest.approx(12.0)
