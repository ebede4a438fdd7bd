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


def needed_window_s(meter: Meter) -> float:
    """Seconds of a window in which two steps of the sensor are `RESOLUTION` of it."""
    return max(LEAST_WINDOW_S, 2 * meter.update_s / RESOLUTION)


def measure_idle(meter: Meter, *, sleep: Callable[[float], None] = time.sleep) -> Reading:
    """A window in which nothing of ours runs; without energy where the meter fails."""

    def rest(seconds: float) -> int:
        sleep(seconds)
        return 0

    return _window(meter, rest, needed_window_s(meter))[0]


def measure_energy(
    meter: Meter,
    work: Work,
    *,
    idle: Callable[[], Reading] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> EnergyUse:
    """Energy of one call of `work`, and the power of a window without it, by `idle` where
    somebody else reads that.

    Nothing is run and no time is spent where the meter is unavailable. A sensor that fails in any
    window gives a result without energy: what was taken before is not trusted either.
    """
    lost = meter.unavailable()
    if lost is not None:
        return EnergyUse(method=meter.method, reason=lost.reason)

    window_s = needed_window_s(meter)
    rest = idle() if idle else measure_idle(meter, sleep=sleep)
    work(meter.update_s)
    windows: list[tuple[Reading, int]] = []
    for _ in range(WINDOWS):
        reading, calls = _window(meter, work, window_s)
        if reading.energy_j is None:
            return EnergyUse(idle_power_w=rest.power_w, method=meter.method, reason=reading.reason)
        windows.append((reading, calls))
    energies = [(reading.energy_j or 0.0) / calls for reading, calls in windows]
    return EnergyUse(
        energy_j=median(energies),
        power_w=median(reading.power_w or 0.0 for reading, _ in windows),
        idle_power_w=rest.power_w,
        method=meter.method,
        reason=f"No idle power: {rest.reason}" if rest.reason else "",
        samples_j=tuple(energies),
        runs=sum(calls for _, calls in windows),
        window_s=min(reading.window_s for reading, _ in windows),
    )


def _window(meter: Meter, work: Work, seconds: float) -> tuple[Reading, int]:
    """What a meter reads while `work` runs, and how many calls that made."""
    calls = 0
    try:
        meter.start()
    except MeterLost as error:
        return Reading(energy_j=None, window_s=0.0, reason=error.reason), calls
    try:
        calls = work(seconds)
    finally:
        reading = meter.stop()
    return reading, calls


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
        try:
            return measure_energy(self.meter, work, idle=lambda: self.idle, sleep=self.sleep)
        except (ChildError, RemoteError) as error:
            first = str(error).splitlines()[0]
            return EnergyUse(
                method=self.meter.method,
                reason=f"The kernel failed while it ran in a loop: {first}",
            )
