"""What cannot be planned, told before anything is: which part is wrong, and what it should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from tilewright.core.errors import ModelError, close_matches
from tilewright.plan.scheduling.parts import Link, ScheduledCall, ScheduleDevice, Wait


def require_sound(
    title: str,
    devices: Sequence[ScheduleDevice],
    calls: Sequence[ScheduledCall],
    waits: Sequence[Wait],
    links: Sequence[Link],
) -> None:
    """Raise ModelError for the first fault of a scheduling problem called `title`."""
    for fault in _faults(devices, calls, waits, links):
        raise ModelError(f"{title}: {fault}", hint="docs/reference/scheduling-problem.md has all.")
