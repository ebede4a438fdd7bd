"""What every meter must keep, as checks that another package can run on its own.

    from tilewright.testing.meters import MeterConformance

    class TestMyMeter(MeterConformance):
        maker = staticmethod(my_meter)
        argument = "0"

Where the sensor is not there, the checks are of how that is said. They take a second or two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from tilewright.core.errors import UsageError
from tilewright.hardware.meters.base import MOST_W, Meter, MeterLost, Reading
from tilewright.hardware.meters.registry import MeterMaker

WINDOW_S = 0.2
_SLACK_S = 0.15
"""How far a window may be from what was asked of it: threads wake up late."""


def _has_reason(reading: Reading) -> None:
    assert reading.reason, "a reading without energy gives no reason"


def _sensible(reading: Reading, longest_s: float) -> None:
    """A reading has energy that can be, or the reason why it has none."""
    assert 0 <= reading.window_s <= longest_s + _SLACK_S, (
        f"a window of {reading.window_s:.3g} s in {longest_s:.3g} s"
    )
    if reading.energy_j is None:
        _has_reason(reading)
        return
    assert isfinite(reading.energy_j) and reading.energy_j >= 0, f"{reading.energy_j} J"
    assert reading.window_s > 0, "energy over no time"
    power_w = reading.power_w
    assert power_w is not None and power_w <= MOST_W, f"{power_w} W"


def _window(meter: Meter, window_s: float) -> tuple[Reading, float]:
    """A reading over about so many seconds, and how long it took in all."""
    begin_s = time.monotonic()
    meter.start()
    time.sleep(window_s)
    reading = meter.stop()
    return reading, time.monotonic() - begin_s


def check_what_it_says_of_itself(meter: Meter) -> None:
    """A method in words, and the seconds between two values of its sensor."""
    assert isinstance(meter.method, str) and meter.method, "it does not say its method"
    assert isfinite(meter.update_s) and meter.update_s >= 0, f"update_s is {meter.update_s}"


def check_unavailable_is_consistent(meter: Meter) -> None:
    """Asked twice, it is there or not; where it is not, it says why, and gives no energy."""
    first, second = meter.unavailable(), meter.unavailable()
    assert (first is None) == (second is None), "asked twice, it is there once"
    if first is None:
        return
    assert isinstance(first, MeterLost) and first.message, "it does not say why it is not there"
    try:
        meter.start()
        reading = meter.stop()
    except MeterLost as error:
        assert error.message, "it does not say why it does not start"
        return
    assert reading.energy_j is None, "a meter that is not there measured energy"
    _has_reason(reading)


def check_windows(meter: Meter) -> None:
    """A window is as long as it took, and has energy or a reason."""
    if meter.unavailable() is not None:
        return
    reading, took_s = _window(meter, WINDOW_S)
    _sensible(reading, took_s)
    if reading.energy_j is not None:
        assert reading.window_s >= WINDOW_S - _SLACK_S, (
            f"a window of {reading.window_s:.3g} s where {WINDOW_S:g} s passed"
        )


def check_windows_begin_anew(meter: Meter) -> None:
    """A second window has nothing of the first one in it, nor of the time between them."""
    if meter.unavailable() is not None:
        return
    _window(meter, WINDOW_S)
    time.sleep(WINDOW_S)
    reading, took_s = _window(meter, WINDOW_S)
    _sensible(reading, took_s)


def check_no_window_at_all(meter: Meter) -> None:
    """A window that ends at once gives a reading as others do."""
    if meter.unavailable() is not None:
        return
    reading, took_s = _window(meter, 0.0)
    assert 0 <= reading.window_s <= took_s + _SLACK_S
    if reading.energy_j is None:
        _has_reason(reading)


def check_arguments(maker: MeterMaker) -> None:
    """Any argument gives a meter or a UsageError that says what is wrong."""
    for argument in ("", "0", "no such sensor", "-1", "'"):
        try:
            meter = maker(argument, Path("/"))
        except UsageError as error:
            assert error.message, "it refuses an argument without a word"
            continue
        check_what_it_says_of_itself(meter)


def check_another_root(maker: MeterMaker, argument: str) -> None:
    """Where `sys` and `proc` are elsewhere, it can be made, and is there or says why not."""
    with TemporaryDirectory() as empty:
        meter = maker(argument, Path(empty))
        lost = meter.unavailable()
        assert lost is None or lost.message


CHECKS: tuple[Callable[[Meter], None], ...] = (
    check_what_it_says_of_itself,
    check_unavailable_is_consistent,
    check_windows,
    check_windows_begin_anew,
    check_no_window_at_all,
)
"""Those of a meter; `check_arguments` and `check_another_root` are of what makes it."""


def check_meter(maker: MeterMaker, argument: str = "", root: Path = Path("/")) -> None:
    """All checks one after the other; raises AssertionError with what was not kept."""
    for check in CHECKS:
        check(maker(argument, root))
    check_arguments(maker)
    check_another_root(maker, argument)


class MeterConformance:
    """The checks as tests for pytest; a subclass called `Test…` sets `maker`, and `argument` where
    it needs one; `meter` may give another one than they make."""

    maker: MeterMaker
    argument: ClassVar[str] = ""

    def meter(self) -> Meter:
        """A meter on this machine."""
        return self.maker(self.argument, Path("/"))

    def test_what_it_says_of_itself(self) -> None:
        check_what_it_says_of_itself(self.meter())

    def test_unavailable_is_consistent(self) -> None:
        check_unavailable_is_consistent(self.meter())

    def test_windows(self) -> None:
        check_windows(self.meter())

    def test_windows_begin_anew(self) -> None:
        check_windows_begin_anew(self.meter())

    def test_no_window_at_all(self) -> None:
        check_no_window_at_all(self.meter())

    def test_arguments(self) -> None:
        check_arguments(self.maker)

    def test_another_root(self) -> None:
        check_another_root(self.maker, self.argument)
