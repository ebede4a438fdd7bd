"""An external command that prints watts or joules: for meters at the wall, or unknown sensors."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from math import inf, isfinite

from tilewright.core.errors import UsageError
from tilewright.hardware.meters.base import (
    Counter,
    CountingMeter,
    Meter,
    MeterLost,
    NullMeter,
    PollingMeter,
)

_TIMEOUT_S = 5.0
_UPDATE_S = 1.0
"""What is taken where the command does not say how often its sensor has a new value."""
_LEAST_POLL_S = 0.05
"""A process is not started more often than that."""
_FORM = "It prints NUMBER [W or J [SECONDS between new values]], as in: 12.5 W 1"


def _printed(words: Sequence[str]) -> tuple[float, str, float]:
    """What a command says: a value, its unit (W or J), and the seconds from one to the next. Raises
    MeterLost for whatever is not a number with a known unit."""
    said = _output(words).split()
    texts = [*said[:3], *("", "W", f"{_UPDATE_S}")[len(said[:3]) :]]
    try:
        value, update_s = float(texts[0]), float(texts[2])
    except ValueError:
        value = update_s = inf
    if texts[1] not in ("W", "J") or not (isfinite(value) and 0 < update_s < inf):
        raise MeterLost(
            f"{words[0]} printed {' '.join(said)[:40]!r}, which is no reading.", hint=_FORM
        )
    return value, texts[1], update_s


def _output(words: Sequence[str]) -> str:
    name = words[0]
    try:
        ran = subprocess.run(
            words,
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
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r} is no command line: {error}.") from None
    if not (words and words[0]):
        raise UsageError("The command of the power meter is empty.", hint=_FORM)
    began_s = clock()
    try:
        _, unit, update_s = _printed(words)
    except MeterLost as error:
        return NullMeter(lost=error)

    def read() -> float:
        value, now, _ = _printed(words)
        if now != unit:
            raise MeterLost(f"{words[0]} printed {now} after {unit}.")
        return value

    method, update_s = f"command: {words[0]}", max(update_s, clock() - began_s)
    if unit == "J":
        return CountingMeter(
            method=method, update_s=update_s, counters=(Counter(read),), clock=clock
        )
    update_s = max(update_s, _LEAST_POLL_S)
    return PollingMeter(method=method, update_s=update_s, power_w=read, clock=clock)
