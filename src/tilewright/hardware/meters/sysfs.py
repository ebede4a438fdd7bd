"""Sensors that Linux shows as files: RAPL, and current sensors of boards.

RAPL tells the energy of CPU packages and, where it is there, of memory, through the kernel's
powercap tree: /sys/class/powercap/intel-rapl:0/{name,energy_uj,max_energy_range_uj}, one folder per
package, with subdomains intel-rapl:0:0 and so on. The files are named after Intel on AMD, too.
Since Linux 5.10 only root may read `energy_uj` (CVE-2020-8694).

Current sensors of boards, INA3221 (Jetson) and the INA2xx family, are in /sys/class/hwmon/hwmon*/:
`name`, and per channel N either `powerN_input` in microwatts, or `inN_input` in millivolts with
`currN_input` in milliamperes; `inN_label` names the rail and `inN_enable` says whether it is in
use. An INA3221 has three channels; what it tells in `in4` to `in7` are voltages over the shunts,
and `curr4` is a sum (the kernel's Documentation/hwmon/ina3221). Other chips in hwmon are left
alone: they tell of batteries, supplies and graphics cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from math import inf, prod
from pathlib import Path
from time import monotonic

from tilewright.hardware.environment import is_virtual
from tilewright.hardware.meters.base import (
    Counter,
    CountingMeter,
    Meter,
    MeterLost,
    NullMeter,
    PollingMeter,
    no_meter,
)
from tilewright.hardware.probe import read_text

_POWERCAP = Path("sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:\d+")
_DOMAINS = ((_PACKAGE, "package"), (re.compile(r"intel-rapl:\d+:\d+"), "dram"))
"""Folders that count, and how their names begin."""
_RAPL_S = 0.001
"""RAPL's counters are brought up to date about every millisecond."""
_MICRO = 1e-6

_HWMON = Path("sys/class/hwmon")
_INA_S = 0.02
"""An INA3221 on a Jetson takes some milliseconds for its three channels."""
_TOTAL = "VDD_IN"
"""The rail that feeds the whole module, on those Jetsons that have it."""
_CHIP = re.compile(r"ina\d+")
_CHANNEL = re.compile(r"(?:power|curr)([123])_input")


def rapl_meter(root: Path = Path("/"), clock: Callable[[], float] = monotonic) -> Meter:
    """All packages and the memory beside them together; a null meter where there are none. Cores
    and graphics are part of their package."""
    found = [
        folder
        for pattern, kind in _DOMAINS
        for folder in _folders(root / _POWERCAP)
        if pattern.fullmatch(folder.name) and (read_text(folder / "name") or "").startswith(kind)
    ]
    if not found:
        return _missing(root)
    names = ", ".join(read_text(folder / "name") or folder.name for folder in found)
    return CountingMeter(
        method=f"powercap: {names}",
        update_s=_RAPL_S,
        counters=[_counter(folder) for folder in found],
        clock=clock,
    )


def _counter(folder: Path) -> Counter:
    text = read_text(folder / "max_energy_range_uj") or ""
    range_j = (int(text) + 1) * _MICRO if text.isdecimal() else inf
    return Counter(partial(_read_j, folder / "energy_uj", range_j), range_j)


def _read_j(path: Path, range_j: float) -> float:
    """Joules since some moment; raises MeterLost with what would help."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except PermissionError:
        raise MeterLost(
            f"{path} may not be read by this user.",
            hint=f"As root, until the next start: chmod a+r {path.parent.parent}/*/energy_uj",
        ) from None
    except OSError as error:
        raise MeterLost(f"{path} cannot be read: {error.strerror}.") from None
    if not text.isdecimal():
        raise MeterLost(f"{path} holds {text[:40]!r}, which is no number of microjoules.")
    if int(text) * _MICRO >= range_j:
        raise MeterLost(f"{path} holds {text[:40]}, more than its own largest value.")
    return int(text) * _MICRO


def _missing(root: Path) -> NullMeter:
    """Why there is no package, as far as the tree and the CPU tell."""
    tree = root / _POWERCAP
    what = f"no {tree}" if not tree.is_dir() else f"no RAPL package in {tree}"
    if any(_PACKAGE.fullmatch(folder.name) for folder in _folders(root / _POWERCAP)):
        return no_meter(
            f"{tree} leads to folders that cannot be read: containers hide them.",
            "Docker shows them with --security-opt systempaths=unconfined.",
        )
    if is_virtual(root):
        return no_meter(f"There is {what}: this is a virtual machine, and they mostly have none.")
    return no_meter(
        f"There is {what}: the kernel's driver is not loaded, or has none for this CPU.",
        "On Intel and AMD, as root: modprobe intel_rapl_msr",
    )


def _folders(tree: Path) -> list[Path]:
    return sorted(tree.iterdir()) if tree.is_dir() else []


def board_meter(root: Path = Path("/"), clock: Callable[[], float] = monotonic) -> Meter:
    """The rail that feeds the board, else the sum of all rails; a null meter without any."""
    tree = root / _HWMON
    rails = [rail for folder in _folders(tree) for rail in _rails(folder)]
    if not rails:
        return no_meter(f"There is {'no INA sensor in' if tree.is_dir() else 'no'} {tree}.")
    chosen = [rail for rail in rails if rail[0] == _TOTAL][:1] or rails
    return PollingMeter(
        method=f"hwmon: {' + '.join(label for label, _ in chosen)}",
        update_s=_INA_S,
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
