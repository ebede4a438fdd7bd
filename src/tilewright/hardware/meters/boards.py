"""Current sensors of boards through hwmon: INA3221 (Jetson) and the INA2xx family.

/sys/class/hwmon/hwmon*/: `name`, and per channel N either `powerN_input` in microwatts, or
`inN_input` in millivolts with `currN_input` in milliamperes; `inN_label` names the rail and
`inN_enable` says whether it is in use. An INA3221 has three channels; what it tells in `in4` to
`in7` are voltages over the shunts, and `curr4` is a sum (the kernel's Documentation/hwmon/ina3221).
Other chips in hwmon are left alone: they tell of batteries, supplies and graphics cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from time import monotonic

from tilewright.hardware.meters.base import Meter, MeterLost, PollingMeter, no_meter
from tilewright.hardware.probe import read_text

_TREE = Path("sys/class/hwmon")
_UPDATE_S = 0.02
"""An INA3221 on a Jetson takes some milliseconds for its three channels."""
_TOTAL = "VDD_IN"
"""The rail that feeds the whole module, on those Jetsons that have it."""
_CHIP = re.compile(r"ina\d+")
_CHANNEL = re.compile(r"(?:power|curr)([123])_input")


def board_meter(root: Path = Path("/"), clock: Callable[[], float] = monotonic) -> Meter:
    """The rail that feeds the board, else the sum of all rails; a null meter without any."""
    tree = root / _TREE
    folders = sorted(tree.iterdir()) if tree.is_dir() else []
    rails = [rail for folder in folders for rail in _rails(folder)]
    if not rails:
        return no_meter(f"There is {'no INA sensor in' if tree.is_dir() else 'no'} {tree}.")
    chosen = [rail for rail in rails if rail[0] == _TOTAL][:1] or rails
    return PollingMeter(
        method=f"hwmon: {' + '.join(label for label, _ in chosen)}",
        update_s=_UPDATE_S,
        power_w=lambda: sum(prod(map(_number, files)) * 1e-6 for _, files in chosen),
        clock=clock,
    )


def _rails(folder: Path) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Label of each channel in use, and the files whose product is its power in microwatts: one in
    microwatts, or one in millivolts and one in milliamperes."""
    chip = read_text(folder / "name") or ""
    if not (_CHIP.fullmatch(chip) and folder.is_dir()):
        return
    matches = [_CHANNEL.fullmatch(path.name) for path in folder.iterdir()]
    for channel in sorted({match[1] for match in matches if match}):
        power, volts = folder / f"power{channel}_input", folder / f"in{channel}_input"
        files = (power,) if power.is_file() else (volts, folder / f"curr{channel}_input")
        if read_text(folder / f"in{channel}_enable") != "0" and files[0].is_file():
            yield read_text(folder / f"in{channel}_label") or f"{chip} {channel}", files


def _number(path: Path) -> int:
    text = read_text(path)
    if text is None:
        raise MeterLost(f"{path} cannot be read.")
    if not text.removeprefix("-").isdecimal():
        raise MeterLost(f"{path} holds {text[:40]!r}, which is no number.")
    return int(text)
