"""What a meter of energy is, and what it says when there is nothing to say.

A reading holds either measured joules with the method, or None with the reason: nothing is ever
estimated from a datasheet and passed off as measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilewright.core.errors import TargetError


class MeterLost(TargetError):
    """A sensor is missing, may not be read, does not answer any more, or says what cannot be.

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
        """Seconds from one value of the sensor to the next; a window must be long against it."""
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
