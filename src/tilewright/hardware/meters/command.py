"""An external command that prints watts or joules: for meters at the wall, or unknown sensors."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

from tilewright.core.errors import UsageError
from tilewright.hardware.meters.base import Meter, MeterLost, NullMeter
from tilewright.hardware.meters.counting import CountingMeter
from tilewright.hardware.meters.polling import PollingMeter

_TIMEOUT_S = 5.0
_UPDATE_S = 1.0
"""What is taken where the command does not say how often its sensor has a new value."""
_LEAST_POLL_S = 0.05
"""A process is not started more often than that."""
_FORM = "It prints NUMBER [W or J [SECONDS between new values]], as in: 12.5 W 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What the command said: `value` in `unit` (W or J), a new one every `update_s`."""

    value: float
    unit: str
    update_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, taken apart; as a counter, one that never wraps."""

    words: tuple[str, ...]
    range_j: float = inf

    def read_j(self) -> float:
        """The joules it prints; raises MeterLost."""
        return self._read("J")

    def read_w(self) -> float:
        """The watts it prints; raises MeterLost."""
        return self._read("W")

    def ask(self) -> Printed:
        """Run it once; raises MeterLost for whatever is not a number with a known unit."""
        words = self._output().split()
        texts = [*words[:3], *("", "W", f"{_UPDATE_S}")[len(words[:3]) :]]
        try:
            value, update_s = float(texts[0]), float(texts[2])
        except ValueError:
            value = update_s = inf
        if texts[1] not in ("W", "J") or not (isfinite(value) and 0 < update_s < inf):
            said = " ".join(words)[:40]
            raise MeterLost(f"{self.words[0]} printed {said!r}, which is no reading.", hint=_FORM)
        return Printed(value=value, unit=texts[1], update_s=update_s)

    def _read(self, unit: str) -> float:
        printed = self.ask()
        if printed.unit != unit:
            raise MeterLost(f"{self.words[0]} printed {printed.unit} after {unit}.")
        return printed.value

    def _output(self) -> str:
        name = self.words[0]
        try:
            ran = subprocess.run(
                self.words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MeterLost(f"{name} did not answer within {_TIMEOUT_S:g} s.") from None
        except OSError as error:
            raise MeterLost(f"{name} cannot be run: {error.strerror}.") from None
        if ran.returncode:
            said = (ran.stderr.strip() or ran.stdout.strip())[:80]
            raise MeterLost(f"{name} ended with {ran.returncode}: {said}")
        return ran.stdout


def command_meter(line: str, clock: Callable[[], float] = time.monotonic) -> Meter:
    """A meter that runs a command line, without a shell; a null meter where it does not answer.

    It is run once now, to learn its unit and how long it takes. Raises UsageError for a line that
    cannot be taken apart.
    """
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"{line!r} is no command line: {error}.") from None
    if not (words and words[0]):
        raise UsageError("The command of the power meter is empty.", hint=_FORM)
    command = Command(words=words)
    began_s = clock()
    try:
        printed = command.ask()
    except MeterLost as error:
        return NullMeter(lost=error)
    update_s = max(printed.update_s, clock() - began_s)
    method = f"command: {words[0]}"
    if printed.unit == "J":
        return CountingMeter(method=method, update_s=update_s, counters=(command,), clock=clock)
    update_s = max(update_s, _LEAST_POLL_S)
    return PollingMeter(method=method, update_s=update_s, power_w=command.read_w, clock=clock)
