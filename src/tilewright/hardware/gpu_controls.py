"""What can be set on the GPUs of this machine, in which range, and whether this process may: asked
of NVML, nothing is tried.

    for control in gpu_controls(card): print(control.name, control.range, control.reason)

The power cap and the clock are the whole card's, and take an administrator. Multiprocessors are
kept to by a process for itself: its kernels get some of them by a green context of NVIDIA's driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.core.results import ControlRow
from tilewright.hardware.cards import Card
from tilewright.hardware.gpus import nvml_library
from tilewright.hardware.probe import read_text
from tilewright.hardware.settable import CLOCK, POWER_CAP, nvml_device

MULTIPROCESSORS = "multiprocessors"

_ADMINISTRATOR_BIT = 21
"""CAP_SYS_ADMIN among the capabilities of a process, which NVIDIA's driver asks for."""
_MILLI, _MEGA, _GIGA = 1e-3, 1e6, 1e9
_GROUPS = ((9, 8), (7, 2))
"""From which compute capability on multiprocessors are given out in groups of how many (CUDA driver
API, green contexts); older ones one by one."""
_LEAST = {8: 4}
"""The fewest, where that is more than a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuControl:
    """A control of a card: `least` to `most` and its value `now`, all in `unit`, and in steps of
    `step` where there are such. `choices` are the clocks that there are, in megahertz. `reason`
    says why this process may not set it, empty where it may."""

    name: str
    how: str
    unit: str
    least: float = 0.0
    most: float = 0.0
    now: float = 0.0
    step: int = 0
    choices: tuple[int, ...] = ()
    reason: str = ""

    @property
    def range(self) -> str:
        """`200 to 700 W`, `8 to 128, in steps of 8`; empty where nothing tells."""
        if not self.most:
            return ""
        steps = f", in steps of {self.step}" if self.step > 1 else ""
        return f"{self.least:g} to {self.most:g} {self.unit}".strip() + steps


def gpu_controls(
    card: Card, root: Path = Path("/"), library: Any = None
) -> tuple[GpuControl, GpuControl, GpuControl]:
    """Multiprocessors, power cap and clock of a card. `library` is nvidia-ml-py's module, imported
    when it is not given."""
    library = library or nvml_library()
    power = GpuControl(name=POWER_CAP, how="NVML: nvidia-smi --power-limit", unit="W")
    clock = GpuControl(name=CLOCK, how="NVML: nvidia-smi --lock-gpu-clocks", unit="GHz")
    return (
        _multiprocessors(card),
        _asked(power, _limits, card, library, root),
        _asked(clock, _clocks, card, library, root),
    )


def _multiprocessors(card: Card) -> GpuControl:
    generation = card.capability[0]
    step = next((step for first, step in _GROUPS if generation >= first), 1)
    return GpuControl(
        name=MULTIPROCESSORS,
        how="a green context of this process: --multiprocessors",
        unit="",
        least=_LEAST.get(generation, step),
        most=(card.multiprocessors - 1) // step * step,
        now=card.multiprocessors,
        step=step,
    )


_Found = dict[str, Any]


def _asked(
    control: GpuControl,
    ask: Callable[[Any, Any], _Found],
    card: Card,
    library: Any,
    root: Path,
) -> GpuControl:
    """The control with what NVML says of it, or with the reason why it does not."""
    found: _Found = {}
    if library is None:
        reason = "the Python package nvidia-ml-py is not installed"
    else:
        reason = "" if _administers(root) else "it takes an administrator (CAP_SYS_ADMIN)"
        try:
            found = ask(library, nvml_device(library, card.identity))
        except library.NVMLError as error:
            reason = f"NVML does not tell it: {error}"
    return GpuControl(name=control.name, how=control.how, unit=control.unit, reason=reason, **found)


def _limits(library: Any, device: Any) -> _Found:
    least, most = library.nvmlDeviceGetPowerManagementLimitConstraints(device)
    now = library.nvmlDeviceGetPowerManagementLimit(device)
    return {"least": _MILLI * least, "most": _MILLI * most, "now": _MILLI * now}


def _clocks(library: Any, device: Any) -> _Found:
    """Those that go with the fastest memory, at which kernels run."""
    memory = max(library.nvmlDeviceGetSupportedMemoryClocks(device))
    choices = sorted(library.nvmlDeviceGetSupportedGraphicsClocks(device, memory))
    now = library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_SM)
    ends = (choices[0], choices[-1], now)
    least, most, now = (each * _MEGA / _GIGA for each in ends)
    return {"least": least, "most": most, "now": now, "choices": tuple(choices)}


def _administers(root: Path) -> bool:
    """Whether this process has the right that NVIDIA's driver asks for."""
    status = read_text(root / "proc/self/status") or ""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> _ADMINISTRATOR_BIT & 1)


_TOLD_AS = {
    MULTIPROCESSORS: "multiprocessors of",
    POWER_CAP: "power cap of",
    CLOCK: "clock of",
}


def gpu_control_rows(
    cards: Sequence[Card], missing: str, root: Path = Path("/"), library: Any = None
) -> tuple[ControlRow, ...]:
    """The controls of each card in the driver's order, as people read them; where there is no card,
    those of any, with why it is `missing`."""
    if not cards:
        names = _TOLD_AS.values()
        return tuple(
            ControlRow(
                name=f"{name} a GPU", settable=False, value="", range="", how="", reason=missing
            )
            for name in names
        )
    return tuple(
        ControlRow(
            name=f"{_TOLD_AS[each.name]} GPU {number}, {card.name}",
            settable=not each.reason,
            value=f"{each.now:g} {each.unit}".strip() if each.now else "",
            range=each.range,
            how=each.how,
            reason=each.reason,
        )
        for number, card in enumerate(cards)
        for each in gpu_controls(card, root, library)
    )
