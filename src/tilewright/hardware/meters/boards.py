"""Current sensors of boards through hwmon: INA3221 (Jetson) and the INA2xx family.

/sys/class/hwmon/hwmon*/: `name`, and per channel N either `powerN_input` in microwatts, or
`inN_input` in millivolts with `currN_input` in milliamperes; `inN_label` names the rail and
`inN_enable` says whether it is in use. An INA3221 has three channels; what it tells in `in4` to
`in7` are voltages over the shunts, and `curr4` is a sum (the kernel's Documentation/hwmon/ina3221).
Other chips in hwmon are left alone: they tell of batteries, supplies and graphics cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tilewright.hardware.meters.base import Meter, MeterLost, no_meter
from tilewright.hardware.meters.polling import PollingMeter
from tilewright.hardware.topology import read_text

_TREE = Path("sys/class/hwmon")
_UPDATE_S = 0.02
"""An INA3221 on a Jetson takes some milliseconds for its three channels."""
_TOTAL = "VDD_IN"
"""The rail that feeds the whole module, on those Jetsons that have it."""
_CHIP = re.compile(r"ina\d+")
_CHANNEL = re.compile(r"(?:power|curr)([123])_input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """One channel of a sensor: a file in microwatts, or one in millivolts and one in milliamperes.

    Their product, each with its factor, is the power in watts.
    """

    label: str
    files: tuple[tuple[Path, float], ...]

    def read_w(self) -> float:
        """Watts now; raises MeterLost."""
        power_w = 1.0
        for path, unit in self.files:
            power_w *= _number(path) * unit
        return power_w


def rails(root: Path = Path("/")) -> tuple[Rail, ...]:
    """All channels in use of all INA chips, in the order of their folders."""
    tree = root / _TREE
    folders = sorted(tree.iterdir()) if tree.is_dir() else []
    return tuple(rail for folder in folders for rail in _rails_of(folder))


def board_meter(root: Path = Path("/"), clock: Callable[[], float] = monotonic) -> Meter:
    """The rail that feeds the board, else the sum of all rails; a null meter without any."""
    found = rails(root)
    if not found:
        tree = root / _TREE
        return no_meter(f"There is {'no INA sensor in' if tree.is_dir() else 'no'} {tree}.")
    chosen = [rail for rail in found if rail.label == _TOTAL][:1] or list(found)
    return PollingMeter(
        method=f"hwmon: {' + '.join(rail.label for rail in chosen)}",
        update_s=_UPDATE_S,
        power_w=lambda: sum(rail.read_w() for rail in chosen),
        clock=clock,
    )


def _rails_of(folder: Path) -> list[Rail]:
    chip = read_text(folder / "name") or ""
    if not (_CHIP.fullmatch(chip) and folder.is_dir()):
        return []
    matches = [_CHANNEL.fullmatch(path.name) for path in folder.iterdir()]
    channels = sorted({match[1] for match in matches if match})
    found = [_rail(folder, channel, chip) for channel in channels]
    return [rail for rail in found if rail is not None]


def _rail(folder: Path, channel: str, chip: str) -> Rail | None:
    """The channel's rail; None where it is switched off, or tells a current without a voltage."""
    if read_text(folder / f"in{channel}_enable") == "0":
        return None
    power, volts = folder / f"power{channel}_input", folder / f"in{channel}_input"
    label = read_text(folder / f"in{channel}_label") or f"{chip} {channel}"
    if power.is_file():
        return Rail(label=label, files=((power, 1e-6),))
    if volts.is_file():
        return Rail(label=label, files=((volts, 1e-3), (folder / f"curr{channel}_input", 1e-3)))
    return None


def _number(path: Path) -> int:
    text = read_text(path)
    if text is None:
        raise MeterLost(f"{path} cannot be read.")
    if not text.removeprefix("-").isdecimal():
        raise MeterLost(f"{path} holds {text[:40]!r}, which is no number.")
    return int(text)
