"""What a meter of energy is, what it says when there is nothing to say, and meters of two kinds of
sensors: counters of energy, and those that only tell power.

A reading holds either measured joules with the method, or None with the reason: nothing is ever
estimated from a datasheet and passed off as measured. A counter is read before and after a window.
Power is read again and again by a thread, and added up.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from tilewright.core.errors import InternalError, TargetError

MOST_W = 20_000.0
"""No single machine draws more: a reading above it is a broken sensor."""


class MeterLost(TargetError):
    """A sensor is missing, may not be read, no longer answers, or gives an impossible value.

    Meters hand it around as a value, too; the hint says what would help.
    """

    @property
    def reason(self) -> str:
        """Message and hint in one line."""
        return self.message if self.hint is None else f"{self.message} {self.hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Energy over a window of time.

    `energy_j` is None where nothing was measured, and `reason` says why.
    """

    energy_j: float | None
    window_s: float
    reason: str = ""

    @property
    def power_w(self) -> float | None:
        """Mean power over the window."""
        if self.energy_j is None or self.window_s <= 0:
            return None
        return self.energy_j / self.window_s


class Meter(Protocol):
    """A sensor of energy or power. One window at a time: `start`, then `stop`."""

    @property
    def method(self) -> str:
        """The sensor, and how it is read (`powercap: package-0`, `nvml: energy counter of …`)."""
        ...

    @property
    def update_s(self) -> float:
        """Seconds from one value of the sensor to the next; a window must be much longer."""
        ...

    def unavailable(self) -> MeterLost | None:
        """None where the sensor answers, else why it does not and what would help."""
        ...

    def start(self) -> None:
        """Begin a window; raises MeterLost when the sensor does not answer."""

    def stop(self) -> Reading:
        """End the window; a sensor that failed meanwhile gives a reading without energy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NullMeter:
    """No sensor; every reading says why."""

    lost: MeterLost
    method: str = "none"
    update_s: float = 0.0

    def unavailable(self) -> MeterLost | None:
        """Always the reason."""
        return self.lost

    def start(self) -> None:
        """Nothing begins."""

    def stop(self) -> Reading:
        """A reading without energy."""
        return Reading(energy_j=None, window_s=0.0, reason=self.lost.reason)


def no_meter(message: str, hint: str | None = None) -> NullMeter:
    """The null meter that says `message`, and with `hint` what would help."""
    return NullMeter(lost=MeterLost(message, hint=hint))


@dataclass(slots=True, kw_only=True)
class SensorMeter(ABC):
    """A meter that asks a sensor, by its `clock`."""

    method: str
    update_s: float
    clock: Callable[[], float] = time.monotonic

    def unavailable(self) -> MeterLost | None:
        """None where the sensor answers with what can be."""
        try:
            self._read()
        except MeterLost as error:
            return error
        return None

    @abstractmethod
    def _read(self) -> Any:
        """What the sensor tells now; raises MeterLost."""


@dataclass(frozen=True, slots=True)
class Counter:
    """Joules used since some moment, going up, from 0 again after `range_j` (infinite: never).

    `read_j` raises MeterLost when they cannot be read.
    """

    read_j: Callable[[], float]
    range_j: float = inf


@dataclass(slots=True, kw_only=True)
class CountingMeter(SensorMeter):
    """The sum of some counters that are read together.

    A window must end before a counter wraps twice: tens of minutes for those known.
    """

    counters: Sequence[Counter]
    _before_j: list[float] = field(default_factory=list[float])
    _began_s: float = 0.0

    def start(self) -> None:
        """Read all counters; raises MeterLost."""
        self._before_j = self._read()
        self._began_s = self.clock()

    def stop(self) -> Reading:
        """The counters' differences, or why there are none."""
        window_s = self.clock() - self._began_s
        try:
            after_j = self._read()
        except MeterLost as error:
            return Reading(energy_j=None, window_s=window_s, reason=error.reason)
        values_j = zip(self.counters, self._before_j, after_j, strict=True)
        energy_j = sum((after - before) % counter.range_j for counter, before, after in values_j)
        reason = ""
        if energy_j <= 0:
            reason = f"{self.method} stood still for {window_s:.3g} s."
        elif not energy_j <= MOST_W * window_s:
            reason = f"{self.method} says {energy_j:.4g} J in {window_s:.3g} s, which cannot be."
        return Reading(energy_j=None if reason else energy_j, window_s=window_s, reason=reason)

    def _read(self) -> list[float]:
        return [counter.read_j() for counter in self.counters]


def integrated_j(samples: list[tuple[float, float]]) -> float:
    """Joules under (second, watt) samples, by trapezoids."""
    pairs = zip(samples, samples[1:], strict=False)
    return sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in pairs)


@dataclass(slots=True, kw_only=True)
class PollingMeter(SensorMeter):
    """A thread reads `power_w` every `update_s` from `start` to `stop`.

    `power_w` returns watts and raises MeterLost when the sensor does not answer. It may take long:
    the window begins after the first answer and ends before the last question.
    """

    power_w: Callable[[], float]
    _samples: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _reason: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Take the first sample and begin to poll; raises MeterLost."""
        if self._thread is not None:
            raise InternalError(f"{self.method} already measures.")
        first_w = self._read()
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
        if not self._reason:
            self._sample()
        if not self._reason:
            energy_j = integrated_j([*inside, (end_s, self._samples[-1][1])])
            if energy_j > 0:
                return Reading(energy_j=energy_j, window_s=window_s)
            self._reason = f"{self.method} gave no power for {window_s:.3g} s."
        return Reading(energy_j=None, window_s=window_s, reason=self._reason)

    def _poll(self) -> None:
        while not self._ended.wait(self.update_s) and not self._reason:
            self._sample()

    def _sample(self) -> None:
        try:
            power_w = self._read()
            self._samples.append((self.clock(), power_w))
        except MeterLost as error:
            self._reason = error.reason

    def _read(self) -> float:
        power_w = self.power_w()
        if not 0 <= power_w <= MOST_W:
            raise MeterLost(f"{self.method} says {power_w:.4g} W, which cannot be.")
        return power_w
