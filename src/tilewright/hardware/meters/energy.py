"""Energy per call of something that takes far less time than a sensor needs for one value.

The call is repeated until the window is so long that the sensor's steps at its ends are 2 % of it.
Several windows are taken; idle power is measured apart and never subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import EnergyUse
from tilewright.hardware.meters.base import Meter, MeterLost, Reading

RESOLUTION = 0.02
"""Share of a window that the sensor's steps at its two ends may be."""
LEAST_WINDOW_S = 1.0
"""Clocks and fans need about that long, whatever the sensor resolves."""
WINDOWS = 3

Work = Callable[[float], int]
"""Makes calls one after the other for at least so many seconds; returns how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    reading: Reading
    calls: int


def needed_window_s(meter: Meter) -> float:
    """Seconds of a window in which two steps of the sensor are `RESOLUTION` of it."""
    return max(LEAST_WINDOW_S, 2 * meter.update_s / RESOLUTION)


def measure_idle(meter: Meter, *, sleep: Callable[[float], None] = time.sleep) -> Reading:
    """A window in which nothing of ours runs; without energy where the meter fails."""

    def rest(seconds: float) -> int:
        sleep(seconds)
        return 0

    return _window(meter, rest, needed_window_s(meter)).reading


def measure_energy(
    meter: Meter,
    work: Work,
    *,
    idle: Reading | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> EnergyUse:
    """Energy of one call of `work`, and the power of a window without it, `idle` where that was
    read before.

    Nothing is run and no time is spent where the meter is unavailable. A sensor that fails in any
    window gives a result without energy: what was taken before is not trusted either.
    """
    lost = meter.unavailable()
    if lost is not None:
        return EnergyUse(method=meter.method, reason=lost.reason)

    window_s = needed_window_s(meter)
    idle = idle or measure_idle(meter, sleep=sleep)
    work(meter.update_s)
    windows: list[_Window] = []
    while len(windows) < WINDOWS:
        windows.append(_window(meter, work, window_s))
        if windows[-1].reading.energy_j is None:
            return EnergyUse(
                idle_power_w=idle.power_w,
                method=meter.method,
                reason=windows[-1].reading.reason,
            )
    powers = [w.reading.power_w for w in windows if w.reading.power_w is not None]
    energies = [w.reading.energy_j / w.calls for w in windows if w.reading.energy_j is not None]
    return EnergyUse(
        energy_j=median(energies),
        power_w=median(powers),
        idle_power_w=idle.power_w,
        method=meter.method,
        reason=f"No idle power: {idle.reason}" if idle.reason else "",
        samples_j=tuple(energies),
        runs=sum(w.calls for w in windows),
        window_s=min(w.reading.window_s for w in windows),
    )


def _window(meter: Meter, work: Work, seconds: float) -> _Window:
    try:
        meter.start()
    except MeterLost as error:
        lost = Reading(energy_j=None, window_s=0.0, reason=error.reason)
        return _Window(reading=lost, calls=0)
    calls = 0
    try:
        calls = work(seconds)
    finally:
        reading = meter.stop()
    return _Window(reading=reading, calls=calls)


@dataclass(frozen=True, kw_only=True)
class KernelEnergy:
    """Energy of kernels by one meter. Idle power is read once, before the first kernel."""

    meter: Meter
    sleep: Callable[[float], None] = field(default=time.sleep)

    @cached_property
    def idle(self) -> Reading:
        """A window in which nothing runs."""
        return measure_idle(self.meter, sleep=self.sleep)

    def of(self, work: Work) -> EnergyUse:
        """Energy of one call of `work`; a kernel that fails meanwhile has none, and the reason."""
        lost = self.meter.unavailable()
        if lost is not None:
            return EnergyUse(method=self.meter.method, reason=lost.reason)
        try:
            return measure_energy(self.meter, work, idle=self.idle, sleep=self.sleep)
        except (ChildError, RemoteError) as error:
            first = str(error).splitlines()[0]
            reason = f"The kernel failed while it ran in a loop: {first}"
            return EnergyUse(method=self.meter.method, reason=reason)
