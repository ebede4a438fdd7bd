"""RAPL through the kernel's powercap tree: energy of CPU packages and, where it is there, memory.

/sys/class/powercap/intel-rapl:0/{name,energy_uj,max_energy_range_uj}, one folder per package, with
subdomains intel-rapl:0:0 and so on. The files are named after Intel on AMD, too. Since Linux 5.10
only root may read `energy_uj` (CVE-2020-8694).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic

from tilewright.hardware.environment import is_virtual
from tilewright.hardware.meters.base import (
    Counter,
    CountingMeter,
    Meter,
    MeterLost,
    NullMeter,
    no_meter,
)
from tilewright.hardware.probe import read_text

_TREE = Path("sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:\d+")
_DOMAINS = ((_PACKAGE, "package"), (re.compile(r"intel-rapl:\d+:\d+"), "dram"))
"""Folders that count, and how their names begin."""
_UPDATE_S = 0.001
"""RAPL's counters are brought up to date about every millisecond."""
_MICRO = 1e-6


def rapl_meter(root: Path = Path("/"), clock: Callable[[], float] = monotonic) -> Meter:
    """All packages and the memory beside them together; a null meter where there are none. Cores
    and graphics are part of their package."""
    found = [
        folder
        for pattern, kind in _DOMAINS
        for folder in _folders(root)
        if pattern.fullmatch(folder.name) and (read_text(folder / "name") or "").startswith(kind)
    ]
    if not found:
        return _missing(root)
    names = ", ".join(read_text(folder / "name") or folder.name for folder in found)
    return CountingMeter(
        method=f"powercap: {names}",
        update_s=_UPDATE_S,
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
    tree = root / _TREE
    what = f"no {tree}" if not tree.is_dir() else f"no RAPL package in {tree}"
    if any(_PACKAGE.fullmatch(folder.name) for folder in _folders(root)):
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


def _folders(root: Path) -> list[Path]:
    tree = root / _TREE
    return sorted(tree.iterdir()) if tree.is_dir() else []
