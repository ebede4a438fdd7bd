"""The suite of meters: ours pass it, and it finds those that break a promise."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tilewright.core.errors import UsageError
from tilewright.hardware.meters import METERS, MeterLost, Reading
from tilewright.testing import meters as suite
from tilewright.testing.meters import MeterConformance


@pytest.mark.parametrize("name", METERS.names())
def test_ours_keep_every_promise(name: str) -> None:
    suite.check_meter(METERS.named(name), "echo 5 W" if name == "command" else "")


class TestCommand(MeterConformance):
    maker = staticmethod(METERS.named("command"))
    argument = "echo 12.5 W"


class Steady:
    """Tells five watts."""

    method, update_s = "steady", 0.0
    begin_s = 0.0

    def unavailable(self) -> MeterLost | None:
        return None

    def start(self) -> None:
        self.begin_s = time.monotonic()

    def stop(self) -> Reading:
        window_s = time.monotonic() - self.begin_s
        return Reading(energy_j=5 * window_s, window_s=window_s)


class Mute(Steady):
    def stop(self):
        return Reading(energy_j=None, window_s=0.1)


class Endless(Steady):
    """Its windows begin when the first one did."""

    def start(self):
        self.begin_s = self.begin_s or time.monotonic()


class Fiery(Steady):
    def stop(self):
        return Reading(energy_j=1e6, window_s=0.2)


class Negative(Steady):
    def stop(self):
        return Reading(energy_j=-1.0, window_s=0.2)


class Hasty(Steady):
    """Tells a window of no length."""

    def stop(self):
        return Reading(energy_j=0.0, window_s=1e-9)


class Anonymous(Steady):
    method = ""


class Moody(Steady):
    def __init__(self):
        self.times = 0

    def unavailable(self):
        self.times += 1
        return MeterLost("not now") if self.times % 2 else None


class Absent(Steady):
    """Is not there, and measures all the same."""

    def unavailable(self):
        return MeterLost("gone")


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (suite.check_what_it_says_of_itself, Anonymous),
        (suite.check_unavailable_is_consistent, Moody),
        (suite.check_unavailable_is_consistent, Absent),
        (suite.check_windows, Fiery),
        (suite.check_windows, Negative),
        (suite.check_windows, Hasty),
        (suite.check_windows_begin_anew, Endless),
        (suite.check_no_window_at_all, Mute),
    ],
)
def test_meters_that_break_a_promise_are_found(check, bad) -> None:
    check(Steady())
    with pytest.raises(AssertionError):
        check(bad())


def test_makers_that_break_a_promise_are_found() -> None:
    def refuses(_argument: str, _root: Path):
        raise UsageError("")

    def rootless(_argument: str, root: Path):
        assert (root / "sys").is_dir()
        return Steady()

    with pytest.raises(AssertionError, match="without a word"):
        suite.check_arguments(refuses)
    with pytest.raises(AssertionError):
        suite.check_another_root(rootless, "")


def test_the_class_runs_every_check() -> None:
    methods = [name for name in dir(MeterConformance) if name.startswith("test_")]
    checks = (*suite.CHECKS, suite.check_arguments, suite.check_another_root)
    assert sorted(methods) == sorted(c.__name__.replace("check_", "test_") for c in checks)
