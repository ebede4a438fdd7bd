"""Axes that fit what they show: seconds in a readable unit, counts from nought."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.report.svg import Axis, LinearAxis, Scale

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_WIDE = 3.0
"""Times this factor apart get a logarithmic axis."""

_BEYOND = 1e30
"""No time or count is as large; axes would overflow beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """An axis of seconds, labelled in `unit`."""

    scale: Scale
    unit: str
    unit_s: float

    @property
    def start(self) -> float:
        """The pixel where the axis begins."""
        return self.scale.start

    @property
    def end(self) -> float:
        """The pixel where it ends."""
        return self.scale.end

    def at(self, value: float) -> float:
        """The pixel of a time in seconds."""
        return self.scale.at(value / self.unit_s)

    def ticks(self) -> list[tuple[float, str]]:
        """Labelled times, in seconds."""
        return [(value * self.unit_s, label) for value, label in self.scale.ticks()]


def time_unit(high_s: float) -> tuple[float, str]:
    """The unit in which a time reads best: its seconds and its name."""
    return next(((s, name) for s, name in _UNITS if high_s >= s), _UNITS[-1])


def time_axis(times_s: Iterable[float], start: float, end: float) -> TimeAxis | None:
    """An axis that holds all these times with a little room; None when there is none above 0.

    Logarithmic where they lie far apart, otherwise linear and not from nought.
    """
    known = [time for time in times_s if usable(time)]
    if not known:
        return None
    low_s, high_s = min(known), max(known)
    unit_s, unit = time_unit(high_s)
    low, high = low_s / unit_s, high_s / unit_s
    scale: Scale
    if high / low > _WIDE:
        scale = Axis(low=low / 1.25, high=high * 1.1, start=start, end=end)
    else:
        room = max(0.08 * (high - low), 0.02 * high)
        wanted = 5 if abs(end - start) > 120 else 3
        scale = LinearAxis(
            low=max(0.0, low - room), high=high + room, start=start, end=end, wanted=wanted
        )
    return TimeAxis(scale=scale, unit=unit, unit_s=unit_s)


def usable(time_s: float | None) -> bool:
    """Whether a time can be drawn."""
    return time_s is not None and 1e-15 < time_s < _BEYOND


def count_axis(values: Sequence[float], start: float, end: float) -> LinearAxis:
    """A linear axis from 0, or from the least value where all lie far from 0."""
    known = [value for value in values if 0 <= value < _BEYOND]
    high, low = max(known, default=1.0), min(known, default=0.0)
    if low < 0.5 * high:
        low = 0.0
    return LinearAxis(low=low, high=high if high - low > 1e-6 else low + 1.0, start=start, end=end)
