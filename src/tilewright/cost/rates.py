"""What estimates assume of a CPU, in one place.

Estimates rank the candidates of a task; the same clock and bandwidths for all of them hardly change
their order. What a machine really reaches is measured (`Peaks`).
"""

from __future__ import annotations

CLOCK_HZ = 2.7e9
"""Cycles per second of every core."""

LEVELS = {"L2": 4e10, "L3": 2e10, "memory": 1e10}
"""Bytes per second that one thread gets from a level of memory."""

LAUNCH_S = 2e-6
"""Starting a parallel region."""
