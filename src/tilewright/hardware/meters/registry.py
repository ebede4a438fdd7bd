"""The meters by name: ours, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tilewright.core.errors import UsageError
from tilewright.core.plugins import Offers
from tilewright.core.targets import Target
from tilewright.hardware.meters.base import Meter, MeterLost, no_meter
from tilewright.hardware.meters.command import command_meter
from tilewright.hardware.meters.nvml import nvml_meter
from tilewright.hardware.meters.sysfs import board_meter, rapl_meter

MeterMaker = Callable[[str, Path], Meter]
"""Makes a meter from what follows the colon of its name, which may be nothing, and from the folder
that holds `sys` and `proc`; raises UsageError for an argument that it does not take."""


def named_meter(name: str, root: Path = Path("/")) -> Meter:
    """The meter `NAME` or `NAME:ARGUMENT`: `auto`, `nvml:1`, `command:CMD`.

    `root` holds `sys` and `proc`. Raises UsageError for another name and for an argument that the
    meter does not take, PluginError where a package offers the name that is broken.
    """
    kind, colon, argument = name.partition(":")
    maker = METERS.named(kind)
    if colon and not argument:
        raise UsageError(f"the power meter {name!r} has nothing after its colon")
    return maker(argument, root)


def meter_of(name: str, target: Target) -> Meter:
    """As `named_meter`; `auto` is the meter of the first GPU where kernels run on a GPU."""
    return named_meter("nvml" if (name, target.kind) == ("auto", "cuda") else name)


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
    hints = " ".join(lost.hint for lost in missing if lost.hint)
    return no_meter(" ".join(lost.message for lost in missing), hints or None)


def _alone(name: str, make: Callable[[Path], Meter], argument: str, root: Path) -> Meter:
    """A meter that takes no argument."""
    if argument:
        raise UsageError(f"the power meter {name!r} takes no argument, but has {argument!r}")
    return make(root)


def _command(argument: str, _root: Path) -> Meter:
    if not argument:
        raise UsageError("the power meter 'command' needs a command", hint="command:CMD")
    return command_meter(argument)


def _nvml(argument: str, _root: Path) -> Meter:
    if argument and not argument.isdecimal():
        raise UsageError(
            f"the power meter 'nvml' takes the number of a GPU, not {argument!r}", hint="nvml:1"
        )
    return nvml_meter(int(argument or 0))


METERS = Offers[MeterMaker](
    "tilewright.meters",
    kind="power meter",
    built_in={
        "auto": partial(_alone, "auto", find_cpu_meter),
        "powercap": partial(_alone, "powercap", rapl_meter),
        "hwmon": partial(_alone, "hwmon", board_meter),
        "nvml": _nvml,
        "none": partial(_alone, "none", lambda _root: no_meter("No meter was asked for.")),
        "command": _command,
    },
    needs=("__call__",),
)
"""What makes each meter, by name."""
