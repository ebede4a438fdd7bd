"""Energy of kernels by a made-up meter: idle power once, and a reason where there is no number."""

from __future__ import annotations

import pytest

from tilewright.core.processes import ChildCrash
from tilewright.hardware.meters import KernelEnergy, MeterLost, Reading
from tilewright.hardware.meters.energy import WINDOWS


class Machine:
    """Draws 30 W at rest and 100 W at work; window `fails_at` gives no energy."""

    method, update_s = "made up", 0.01

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.now_s = self.used_j = 0.0
        self.windows = self.rests = 0
        self.lost: MeterLost | None = None
        self._began = (0.0, 0.0)

    def unavailable(self) -> MeterLost | None:
        return self.lost

    def start(self) -> None:
        self._began = (self.now_s, self.used_j)

    def stop(self) -> Reading:
        self.windows += 1
        window_s, energy_j = self.now_s - self._began[0], self.used_j - self._began[1]
        if self.windows == self.fails_at:
            return Reading(energy_j=None, window_s=window_s, reason="It is gone.")
        return Reading(energy_j=energy_j, window_s=window_s)

    def sleep(self, seconds: float) -> None:
        self.rests += 1
        self._pass(seconds, 30.0)

    def work(self, seconds: float) -> int:
        self._pass(seconds, 100.0)
        return 1000

    def _pass(self, seconds: float, power_w: float) -> None:
        self.now_s += seconds
        self.used_j += power_w * seconds


def test_idle_power_is_read_once_for_all_kernels() -> None:
    machine = Machine()
    energy = KernelEnergy(meter=machine, sleep=machine.sleep)
    for _ in range(3):
        found = energy.of(machine.work)
        assert found.power_w == pytest.approx(100.0) and found.idle_power_w == pytest.approx(30.0)
        assert found.energy_j == pytest.approx(100.0 * found.window_s / 1000)
        assert found.runs == 1000 * WINDOWS
    assert machine.rests == 1


def test_a_meter_that_goes_away_costs_one_kernels_energy() -> None:
    machine = Machine(fails_at=3)
    energy = KernelEnergy(meter=machine, sleep=machine.sleep)
    lost = energy.of(machine.work)
    assert (lost.energy_j, lost.power_w, lost.reason) == (None, None, "It is gone.")
    assert energy.of(machine.work).power_w == pytest.approx(100.0)


def test_nothing_runs_without_a_meter() -> None:
    machine = Machine()
    machine.lost = MeterLost("No permission.", hint="Be root.")
    found = KernelEnergy(meter=machine, sleep=machine.sleep).of(machine.work)
    assert (found.energy_j, found.reason) == (None, "No permission. Be root.")
    assert machine.now_s == 0


def test_a_kernel_that_crashes_in_the_loop_keeps_its_row() -> None:
    machine = Machine()

    def crash(_seconds: float) -> int:
        raise ChildCrash(-11, "last words")

    found = KernelEnergy(meter=machine, sleep=machine.sleep).of(crash)
    assert found.energy_j is None
    assert "SIGSEGV" in found.reason and "loop" in found.reason
