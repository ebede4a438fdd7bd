"""Meters that only tell power: it is read again and again and added up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.core.errors import InternalError
from tilewright.hardware.meters.base import MeterLost, Reading
from tilewright.hardware.meters.counting import MOST_W


def integrated_j(samples: list[tuple[float, float]]) -> float:
    """Joules under (second, watt) samples, by trapezoids."""
    pairs = zip(samples, samples[1:], strict=False)
    return sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in pairs)


@dataclass(slots=True, kw_only=True)
class PollingMeter:
    """A thread reads `power_w` every `update_s` from `start` to `stop`.

    `power_w` returns watts and raises MeterLost when the sensor does not answer. It may take long:
    the window begins after the first answer and ends before the last question.
    """

    method: str
    update_s: float
    power_w: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    _samples: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _reason: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def unavailable(self) -> MeterLost | None:
        """None where the sensor answers with a possible number of watts."""
        try:
            self._sensible()
        except MeterLost as error:
            return error
        return None

    def start(self) -> None:
        """Take the first sample and begin to poll; raises MeterLost."""
        if self._thread is not None:
            raise InternalError(f"{self.method} already measures.")
        first_w = self._sensible()
        self._samples, self._reason = [(self.clock(), first_w)], ""
        self._ended.clear()
        self._thread = threading.Thread(target=self._poll, name="meter", daemon=True)
        self._thread.start()

    def stop(self) -> Reading:
        """Take the last sample and add up; a failure on the way gives a reading without energy."""
        end_s = self.clock()
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        inside = [sample for sample in self._samples if sample[0] <= end_s]
        window_s = end_s - inside[0][0] if inside else 0.0
        energy_j = 0.0
        if not self._reason:
            self._sample()
        if not self._reason:
            energy_j = integrated_j([*inside, (end_s, self._samples[-1][1])])
            if energy_j <= 0:
                self._reason = f"{self.method} told no power for {window_s:.3g} s."
        if self._reason:
            return Reading(energy_j=None, window_s=window_s, reason=self._reason)
        return Reading(energy_j=energy_j, window_s=window_s)

    def _poll(self) -> None:
        while not self._ended.wait(self.update_s) and not self._reason:
            self._sample()

    def _sample(self) -> None:
        try:
            power_w = self._sensible()
        except MeterLost as error:
            self._reason = error.reason
            return
        self._samples.append((self.clock(), power_w))

    def _sensible(self) -> float:
        power_w = self.power_w()
        if not 0 <= power_w <= MOST_W:
            raise MeterLost(f"{self.method} says {power_w:.4g} W, which cannot be.")
        return power_w
