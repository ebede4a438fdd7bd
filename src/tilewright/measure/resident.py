"""How much memory a process holds at its peak, beyond what it held at some moment.

Linux keeps the largest resident size a process ever had (`VmHWM`) and sets it back on request (5 to
/proc/self/clear_refs). So nothing is sampled and no peak is missed. Where the kernel does not set
it back, the old peak hides a lower one; then there is no number, and the reason. `ru_maxrss` is the
same counter, and cannot be set back at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tilewright.hardware.topology import read_text

_RESET = "5"
_FIELD = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """Bytes beyond the state before, None with the `reason` where they are not known."""

    bytes: int | None
    method: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """The resident size at the beginning, and the peak before it that could not be forgotten."""

    resident_bytes: int = 0
    peak_bytes: int = 0
    reason: str = ""


class ResidentMemory:
    """This process's resident memory; `process` is its folder in /proc."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._process = process

    def begin(self) -> _Before:
        """Forget the peak up to now, where that is allowed."""
        reason = ""
        try:
            (self._process / "clear_refs").write_text(_RESET)
        except OSError as error:
            reason = f"{self._process / 'clear_refs'}: {error.strerror}"
        sizes = self._sizes()
        if sizes is None:
            return _Before(reason=f"{self._process / 'status'} tells no VmHWM and VmRSS")
        peak, resident = sizes
        return _Before(resident_bytes=resident, peak_bytes=peak if reason else 0, reason=reason)

    def peak_since(self, before: _Before) -> MemoryPeak:
        """The largest size since `begin`, less the size then."""
        sizes = self._sizes()
        if sizes is None or not before.resident_bytes:
            reason = before.reason or f"{self._process / 'status'} cannot be read any more"
            return MemoryPeak(bytes=None, method="none", reason=reason)
        peak = sizes[0]
        if peak <= before.peak_bytes:
            reason = f"an earlier peak of this process was higher and stays ({before.reason})"
            return MemoryPeak(bytes=None, method="none", reason=reason)
        return MemoryPeak(
            bytes=max(0, peak - before.resident_bytes), method="VmHWM of a process of its own"
        )

    def _sizes(self) -> tuple[int, int] | None:
        """Peak and present size in bytes."""
        text = read_text(self._process / "status") or ""
        found = {name: int(number) << 10 for name, number in _FIELD.findall(text)}
        return (found["VmHWM"], found["VmRSS"]) if len(found) == 2 else None
