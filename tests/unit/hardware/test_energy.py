"""Energy per call with made-up sensors whose clock is what ran on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hardware.meters import MeterLost, NullMeter, Reading, measure_energy
from tilewright.hardware.meters.energy import LEAST_WINDOW_S, RESOLUTION, WINDOWS, needed_window_s


class Machine:
    """Draws constant power while it works and at rest; its sensor moves in steps.

    Window `fails_at` gives no energy, window `refuses_at` does not begin.
    """

    method = "steps"

    def __init__(
        self,
        *,
        update_s: float = 0.01,
        latency_s: float = 0.01,
        fails_at: int | None = None,
        refuses_at: int | None = None,
    ) -> None:
        self.update_s, self.latency_s = update_s, latency_s
        self.fails_at, self.refuses_at = fails_at, refuses_at
        self.now_s = self.used_j = 0.0
        self.power_w = 40.0
        self.windows: list[float] = []
        self._began = (0.0, 0.0)

    def unavailable(self) -> MeterLost | None:
        return None

    def start(self) -> None:
        if len(self.windows) == self.refuses_at:
            raise MeterLost("It is gone.", hint="Look for it.")
        self._began = (self.now_s, self._sensor_j())

    def stop(self) -> Reading:
        number, window_s = len(self.windows), self.now_s - self._began[0]
        self.windows.append(window_s)
        if number == self.fails_at:
            return Reading(energy_j=None, window_s=window_s, reason="gone")
        return Reading(energy_j=self._sensor_j() - self._began[1], window_s=window_s)

    def work(self, seconds: float) -> int:
        calls, end_s = 0, self.now_s + seconds
        while calls == 0 or self.now_s < end_s:
            more = max(1, int((end_s - self.now_s) / self.latency_s))
            calls += more
            self._pass(more * self.latency_s, 200.0)
        return calls

    def sleep(self, seconds: float) -> None:
        self._pass(seconds, 40.0)

    def _pass(self, seconds: float, power_w: float) -> None:
        self.power_w = power_w
        self.now_s += seconds
        self.used_j += seconds * power_w

    def _sensor_j(self) -> float:
        """What the sensor had at its last step."""
        return self.used_j - self.now_s % self.update_s * self.power_w


@given(st.floats(1e-6, 300.0), st.floats(0.0005, 2.0))
def test_a_call_is_repeated_until_the_sensor_resolves_it(latency_s: float, update_s: float) -> None:
    machine = Machine(latency_s=latency_s, update_s=update_s)
    energy = measure_energy(machine, machine.work, sleep=machine.sleep)
    assert len(energy.samples_j) == WINDOWS and energy.runs >= WINDOWS
    assert energy.window_s >= needed_window_s(machine) * (1 - 1e-9)
    assert energy.energy_j == pytest.approx(200.0 * latency_s, rel=RESOLUTION)
    assert energy.power_w == pytest.approx(200.0, rel=RESOLUTION)
    assert energy.idle_power_w == pytest.approx(40.0, rel=RESOLUTION)
    assert (energy.method, energy.reason) == ("steps", "")


@given(st.floats(0, 10))
def test_windows_are_long_against_the_sensor(update_s: float) -> None:
    window_s = needed_window_s(Machine(update_s=update_s))
    assert window_s >= LEAST_WINDOW_S and 2 * update_s <= RESOLUTION * window_s * (1 + 1e-9)


def test_without_a_meter_nothing_runs() -> None:
    machine = Machine()
    meter = NullMeter(lost=MeterLost("No sensor here.", hint="Buy one."))
    energy = measure_energy(meter, machine.work, sleep=machine.sleep)
    assert machine.now_s == 0
    assert (energy.energy_j, energy.power_w, energy.idle_power_w) == (None, None, None)
    assert (energy.method, energy.reason) == ("none", "No sensor here. Buy one.")


@pytest.mark.parametrize("window", range(1, WINDOWS + 1))
def test_a_sensor_that_fails_in_any_window_leaves_nothing_to_trust(window: int) -> None:
    machine = Machine(fails_at=window)
    energy = measure_energy(machine, machine.work, sleep=machine.sleep)
    assert energy.energy_j is None and energy.power_w is None and energy.samples_j == ()
    assert energy.idle_power_w == pytest.approx(40.0, rel=RESOLUTION)
    assert energy.reason == "gone" and len(machine.windows) == window + 1


def test_a_window_that_cannot_begin_says_why() -> None:
    machine = Machine(refuses_at=2)
    energy = measure_energy(machine, machine.work, sleep=machine.sleep)
    assert energy.energy_j is None and energy.reason == "It is gone. Look for it."


def test_idle_power_alone_may_be_missing() -> None:
    machine = Machine(fails_at=0)
    energy = measure_energy(machine, machine.work, sleep=machine.sleep)
    assert energy.idle_power_w is None and energy.reason == "No idle power: gone"
    assert energy.power_w == pytest.approx(200.0, rel=RESOLUTION)


def test_work_that_fails_ends_the_window() -> None:
    machine = Machine()

    def crash(seconds: float) -> int:
        if len(machine.windows) == 1 and seconds > machine.update_s:
            raise RuntimeError("crashed")
        return 1

    with pytest.raises(RuntimeError):
        measure_energy(machine, crash, sleep=machine.sleep)
    assert len(machine.windows) == 2
