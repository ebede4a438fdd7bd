"""A counter of energy that goes on in steps, by a made-up NVML and a made-up clock."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.nvml import Clock, FakeNvml
from tilewright.core.errors import InternalError
from tilewright.hardware.meters import Meter, Reading, nvml_meter
from tilewright.hardware.meters.energy import LEAST_WINDOW_S, needed_window_s


class SteppingNvml(FakeNvml):
    """A counter that goes on every 50 ms, by what each 50 ms took; asking it takes 10 ms."""

    def __init__(self, clock: Clock, watts: Callable[[float], float]) -> None:
        super().__init__(gpus=2)
        self.clock, self.watts = clock, watts

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self.clock.now_s += 0.01
        steps = int(self.clock.now_s / 0.05)
        used = sum(self.watts(step * 0.05) for step in range(steps))
        return super().nvmlDeviceGetTotalEnergyConsumption(handle) + round(used * 50)


def windowed(meter: Meter, clock: Clock, seconds: float) -> Reading:
    """What a meter reads in a window of about so many seconds of a clock that reading advances."""
    until_s = clock.now_s + seconds
    meter.start()
    while clock.now_s < until_s:
        time.sleep(1e-3)
    return meter.stop()


@given(watts=st.floats(100, 700), first=st.floats(0, 700))
@settings(max_examples=5, deadline=None)
def test_nvml_takes_power_from_step_to_step_of_the_counter(watts: float, first: float) -> None:
    clock = Clock()
    began_s = clock.now_s
    library = SteppingNvml(clock, lambda at_s: watts if at_s > began_s + 0.1 else first)
    meter = nvml_meter(1, library, clock)
    assert meter.method == "nvml: energy counter of GPU 1"
    assert needed_window_s(meter) == LEAST_WINDOW_S
    reading = windowed(meter, clock, 1.0)
    assert reading.reason == ""
    assert reading.power_w == pytest.approx(watts, rel=1e-3)
    assert reading.energy_j == pytest.approx(watts * reading.window_s, rel=1e-3)


def test_a_counter_of_nvml_that_stands_still_runs_away_or_vanishes() -> None:
    clock = Clock()
    library = SteppingNvml(clock, lambda _at_s: 0.0)
    meter = nvml_meter(1, library, clock)
    assert "went on 0 times" in windowed(meter, clock, 1.0).reason
    library.watts = lambda _at_s: 1e6
    assert "cannot be" in windowed(meter, clock, 1.0).reason
    library.watts = lambda _at_s: 300.0
    meter.start()
    with pytest.raises(InternalError, match="already"):
        meter.start()
    library.counter = False
    time.sleep(0.05)
    assert "Not Supported" in meter.stop().reason
