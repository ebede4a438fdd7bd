"""When networks and parts of them are slow."""

from __future__ import annotations

from tilewright.serving.pace import Pace, slowdown
from tilewright.serving.slow_devices import SlowDevices


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


def test_old_times_lose_their_weight() -> None:
    now_s = [0.0]
    pace = Pace(0.01, lambda: now_s[0])
    for _ in range(9):
        pace.note(0.1)
    assert pace.is_slow and abs(pace.expected_s - 0.1) < 1e-9
    now_s[0] = 11.0
    assert not pace.is_slow and pace.expected_s == 0.01, "nothing of late: as at the start"
    for _ in range(5):
        pace.note(0.05)
    assert abs(pace.expected_s - 0.05) < 1e-9, "what is slow again is seen again"


def test_runs_that_become_very_slow_are_seen() -> None:
    now_s = [0.0]
    pace = Pace(1.0, lambda: now_s[0])
    for _ in range(5):
        now_s[0] += 50.0
        pace.note(50.0)
    assert pace.is_slow


def test_a_slow_device_is_tried_again_and_later_each_time() -> None:
    now_s = [0.0]
    slow = SlowDevices(lambda: now_s[0])
    for pause_s in (10.0, 20.0, 40.0):
        slow.note("pi", 5.0)
        now_s[0] += 0.99 * pause_s
        assert slow.factors == {"pi": 5.0} and slow.tried_again() == []
        now_s[0] += 0.01 * pause_s
        assert slow.factors == {} and slow.tried_again() == ["pi"] and slow.tried_again() == []
    now_s[0] += 41.0
    slow.note("pi", 4.0)
    now_s[0] += 10.0
    assert slow.tried_again() == ["pi"], "it was itself for long: all over again"


def test_places_of_a_device_that_are_slow_together_are_one_time() -> None:
    now_s = [0.0]
    slow = SlowDevices(lambda: now_s[0])
    for factor in (4.0, 6.0, 5.0):
        slow.note("llvm", factor)
        now_s[0] += 0.1
    assert slow.factors == {"llvm": 6.0}
    now_s[0] = 10.0
    assert slow.tried_again() == ["llvm"]
