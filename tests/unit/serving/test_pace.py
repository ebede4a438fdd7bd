"""When networks and parts of them are slow."""

from __future__ import annotations

from tilewright.serving.pace import Pace, slowdown


def followed(begin_s: float, takes_s: float) -> Pace:
    pace = Pace(begin_s)
    for _ in range(5):
        pace.note(takes_s)
    return pace


def test_a_short_part_that_is_slow_beside_long_ones_that_are_not_is_nothing() -> None:
    short, usual = followed(1e-4, 3e-3), followed(2e-2, 2.1e-2)
    assert short.is_slow and slowdown([short]) == 30
    assert slowdown([short, usual]) is None
    assert slowdown([]) is None


def test_what_is_slow_is_slow_in_all_and_by_a_millisecond() -> None:
    assert slowdown([followed(1e-4, 1e-3)]) is None
    slow = slowdown([followed(1e-3, 5e-3), followed(1e-3, 3e-3)])
    assert slow is not None and abs(slow - 4) < 1e-9
