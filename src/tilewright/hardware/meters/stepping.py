"""A counter of energy that goes on in steps, whose moments are noted."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tilewright.core.errors import InternalError
from tilewright.hardware.meters.base import MOST_W, Counter, MeterLost, Reading, SensorMeter

SETTLING_S = 0.15
"""A board draws what it goes on drawing after so long: steps before it are left out."""
_LEAST_STEPS = 4


@dataclass(slots=True, kw_only=True)
class SteppingMeter(SensorMeter):
    """A thread asks `counter` every `update_s`, and notes when it went on.

    Counters of GPUs go on every 20 to 100 ms. Between two steps their energy is exact, so that a
    window need not be long against a step: the mean power from the first to the last step in it is
    taken for all of it.
    """

    counter: Counter
    _steps: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _began_s: float = 0.0
    _reason: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to ask; raises MeterLost when the counter does not answer."""
        if self._thread is not None:
            raise InternalError(f"{self.method} already measures.")
        before_j = self._read()
        self._steps, self._reason, self._began_s = [], "", self.clock()
        self._ended.clear()
        self._thread = threading.Thread(
            target=self._watch, args=(before_j,), name="meter", daemon=True
        )
        self._thread.start()

    def stop(self) -> Reading:
        """The mean power between steps, times the window; or why that is not known."""
        window_s = self.clock() - self._began_s
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        first_s, last_s = self._began_s + SETTLING_S, self._began_s + window_s
        steps = [step for step in self._steps if first_s <= step[0] <= last_s]
        if self._reason:
            return Reading(energy_j=None, window_s=window_s, reason=self._reason)
        if len(steps) < _LEAST_STEPS:
            reason = f"{self.method} went on {len(steps)} times in {window_s:.3g} s."
            return Reading(energy_j=None, window_s=window_s, reason=reason)
        (from_s, from_j), (to_s, to_j) = steps[0], steps[-1]
        used_j = (to_j - from_j) % self.counter.range_j
        power_w = used_j / (to_s - from_s)
        if not 0 < power_w <= MOST_W:
            reason = f"{self.method} says {power_w:.4g} W, which cannot be."
            return Reading(energy_j=None, window_s=window_s, reason=reason)
        return Reading(energy_j=power_w * window_s, window_s=window_s)

    def _watch(self, last_j: float) -> None:
        while not self._ended.wait(self.update_s) and not self._reason:
            try:
                now_j = self._read()
            except MeterLost as error:
                self._reason = error.reason
                return
            if now_j != last_j:
                self._steps.append((self.clock(), now_j))
                last_j = now_j

    def _read(self) -> float:
        return self.counter.read_j()
