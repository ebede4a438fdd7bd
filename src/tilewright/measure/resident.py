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

from tilewright.hardware.probe import read_text

_RESET = "5"
_FIELD = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """Bytes beyond the state before, None with the `reason` where they are not known."""

    bytes: int | None
    method: str
    reason: str = ""


class ResidentMemory:
    """This process's resident memory from now on; `process` is its folder in /proc.

    `reason` says why the peak up to now could not be forgotten, empty where it is.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._status, self.reason = process / "status", ""
        reset = process / "clear_refs"
        try:
            reset.write_text(_RESET)
        except OSError as error:
            self.reason = f"{reset}: {error.strerror}"
        self._before = self._sizes()

    def peak(self) -> MemoryPeak:
        """The largest size since the beginning, less the size then."""
        sizes = self._sizes()
        if self._before is None:
            return _unknown(f"{self._status} tells no VmHWM and VmRSS")
        if sizes is None:
            return _unknown(self.reason or f"{self._status} cannot be read any more")
        if self.reason and sizes[0] <= self._before[0]:
            return _unknown(f"an earlier peak of this process was higher and stays ({self.reason})")
        grown = max(0, sizes[0] - self._before[1])
        return MemoryPeak(bytes=grown, method="VmHWM of a process of its own")

    def _sizes(self) -> tuple[int, int] | None:
        """Peak and present size in bytes."""
        text = read_text(self._status) or ""
        found = {name: int(number) << 10 for name, number in _FIELD.findall(text)}
        return (found["VmHWM"], found["VmRSS"]) if len(found) == 2 else None


def _unknown(reason: str) -> MemoryPeak:
    return MemoryPeak(bytes=None, method="none", reason=reason)
