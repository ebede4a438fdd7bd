"""What is read and written to hold a control: files of the kernel, and settings of a GPU by NVML.

    read("/sys/…/scaling_max_freq")       "3500000"
    write("nvml:IDENTITY/power-cap", "350000")

The settings of a GPU are `power-cap`, the limit of its board in milliwatts, and `clock`, at which
its multiprocessors are locked, in megahertz; `reset` unlocks it. What reads as its clock is what
they run at just now: NVML does not tell at what they are locked. `restoring` writes the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from tilewright.hardware.gpus import nvml_library
from tilewright.hardware.probe import read_text

POWER_CAP, CLOCK = "power-cap", "clock"
UNLOCKED = "reset"
"""The text that unlocks a clock."""

_NVML = "nvml:"


def setting_of(identity: str, setting: str) -> str:
    """The name of a setting of the GPU with this identity."""
    return f"{_NVML}{identity}/{setting}"


def nvml_device(library: Any, identity: str) -> Any:
    """NVML's handle of a GPU. `library` is nvidia-ml-py's module, whose NVMLError is raised."""
    library.nvmlInit()
    return library.nvmlDeviceGetHandleByUUID(f"GPU-{UUID(identity)}")


def read(name: str) -> str | None:
    """What is there, as text; None where it cannot be read."""
    if not name.startswith(_NVML):
        return read_text(Path(name))
    try:
        return _nvml(name, None)
    except OSError:
        return None


def write(name: str, text: str) -> None:
    """Set it. Raises OSError with the reason where that is refused."""
    if name.startswith(_NVML):
        _nvml(name, text)
    else:
        Path(name).write_text(text, encoding="ascii")


def by_hand(name: str, text: str) -> str:
    """How a person writes a text there."""
    if not name.startswith(_NVML):
        return f"{name} {text}".strip()
    identity, _, setting = name.removeprefix(_NVML).partition("/")
    if setting == POWER_CAP:
        option = f"--power-limit={int(text) / 1e3:g}"
    elif text == UNLOCKED:
        option = "--reset-gpu-clocks"
    else:
        option = f"--lock-gpu-clocks={text}"
    return f"nvidia-smi --id=GPU-{UUID(identity)} {option}"


def _nvml(name: str, text: str | None) -> str:
    """Set what is named where there is a text; what it is then. Raises OSError."""
    library = nvml_library()
    if library is None:
        raise OSError("the Python package nvidia-ml-py is not installed")
    identity, _, setting = name.removeprefix(_NVML).partition("/")
    try:
        device = nvml_device(library, identity)
        if setting == POWER_CAP:
            if text is not None:
                library.nvmlDeviceSetPowerManagementLimit(device, int(text))
            return str(library.nvmlDeviceGetPowerManagementLimit(device))
        if text == UNLOCKED:
            library.nvmlDeviceResetGpuLockedClocks(device)
        elif text is not None:
            library.nvmlDeviceSetGpuLockedClocks(device, int(text), int(text))
        return str(library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_SM))
    except library.NVMLError as error:
        raise OSError(f"NVML: {error}") from None
