"""Meters of power and energy: one module per kind of sensor.

`named_meter` gives the one that was asked for, `auto` the best there is for the CPU. Where there
is none, it is a null meter that says why.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.core.errors import UsageError, close_matches
from tilewright.hardware.meters.base import Meter, MeterLost, NullMeter, Reading, no_meter
from tilewright.hardware.meters.boards import board_meter
from tilewright.hardware.meters.command import command_meter
from tilewright.hardware.meters.energy import measure_energy, measure_idle
from tilewright.hardware.meters.nvml import nvml_meter
from tilewright.hardware.meters.powercap import rapl_meter

__all__ = [
    "METERS",
    "Meter",
    "MeterLost",
    "NullMeter",
    "Reading",
    "board_meter",
    "command_meter",
    "find_cpu_meter",
    "measure_energy",
    "measure_idle",
    "named_meter",
    "nvml_meter",
    "rapl_meter",
]

METERS = ("auto", "powercap", "hwmon", "nvml", "none", "command:CMD")


def named_meter(name: str, root: Path = Path("/")) -> Meter:
    """The meter `name`, one of `METERS`, or `nvml:N` for another GPU than the first.

    `root` holds `sys` and `proc`. Raises UsageError for another name.
    """
    kind, colon, rest = name.partition(":")
    if kind == "command" and colon:
        return command_meter(rest)
    if kind == "nvml" and (rest.isdecimal() or not colon):
        return nvml_meter(int(rest or 0))
    if name == "auto":
        return find_cpu_meter(root)
    if name == "powercap":
        return rapl_meter(root)
    if name == "hwmon":
        return board_meter(root)
    if name == "none":
        return no_meter("No meter was asked for.")
    raise UsageError(f"There is no power meter {name!r}.", hint=close_matches(name, METERS))


def find_cpu_meter(root: Path = Path("/")) -> Meter:
    """RAPL, else a board's sensor.

    A sensor that is there but may not be read gives a null meter with the reason.
    """
    missing: list[MeterLost] = []
    for meter in (rapl_meter(root), board_meter(root)):
        lost = meter.unavailable()
        if lost is None:
            return meter
        missing.append(lost)
    hints = [lost.hint for lost in missing if lost.hint]
    return no_meter(" ".join(lost.message for lost in missing), " ".join(hints) or None)
