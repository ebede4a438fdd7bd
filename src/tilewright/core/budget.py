"""What a run may spend: wall clock or candidate measurements, all runs on a network together."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite

from tilewright.core.errors import UsageError
from tilewright.core.records import Run
from tilewright.core.units import parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A total: `seconds` of wall clock or `measurements`; the other one is infinite."""

    seconds: float = inf
    measurements: float = inf

    @property
    def nothing(self) -> bool:
        """Whether nothing may be measured."""
        return self.seconds <= 0 or self.measurements <= 0

    def part(self, share: float) -> Budget:
        """A share of it, at least one measurement of a budget that is not empty."""
        count = self.measurements * share
        return Budget(
            seconds=self.seconds * share,
            measurements=max(1.0, count // 1) if 0 < count < inf else count,
        )


def parse_budget(text: str | float) -> Budget:
    """`10m`, `90s`, `1h30m` are wall clock; a bare number counts candidate measurements.

    Raises UsageError for anything else.
    """
    if isinstance(text, str):
        seconds = parse_duration(text.strip())
        if seconds is not None:
            return Budget(seconds=seconds)
    try:
        count = -1.0 if isinstance(text, bool) else float(text)
    except (ValueError, OverflowError, TypeError):
        count = -1.0
    if not isfinite(count) or count < 0 or count != int(count):
        raise UsageError(
            f"budget {text!r} is neither a duration nor a number of measurements",
            hint="Examples: --budget 90s, --budget 10m, --budget 1h30m, --budget 500, --budget 0",
        )
    return Budget(measurements=count)


class Spending:
    """Counts what this run spends on top of earlier runs.

    `reserve_s` is kept back for compiling and checking at the end, `looks_s` before that for second
    looks at finalists, `reserve_count` for what is measured after the search; all may be changed on
    the way.
    """

    def __init__(
        self,
        budget: Budget,
        earlier: Iterable[Run],
        *,
        began_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        runs = list(earlier)
        self._budget = budget
        self._clock = clock
        self._began_s = began_s
        self._earlier_s = sum(run.spent_s for run in runs)
        self._earlier_count = sum(run.measurements + run.failures for run in runs)
        self.reserve_s = 0.0
        self.looks_s = 0.0
        self.reserve_count = 0
        self.count = 0

    @property
    def elapsed_s(self) -> float:
        """Wall clock of this run so far."""
        return self._clock() - self._began_s

    @property
    def remaining_s(self) -> float:
        """Seconds left for measuring."""
        kept_s = self.reserve_s + self.looks_s
        return self._budget.seconds - self._earlier_s - self.elapsed_s - kept_s

    @property
    def remaining_count(self) -> float:
        """Measurements left."""
        spent = self._earlier_count + self.count + self.reserve_count
        return self._budget.measurements - spent

    @contextmanager
    def keeping(self, share: float) -> Generator[None]:
        """Keep back a share of what is left now, for what comes after the block."""
        kept_s = share * max(0.0, self.remaining_s) if isfinite(self.remaining_s) else 0.0
        left = self.remaining_count
        kept = int(share * max(0.0, left)) if isfinite(left) else 0
        self.reserve_s += kept_s
        self.reserve_count += kept
        try:
            yield
        finally:
            self.reserve_s -= kept_s
            self.reserve_count -= kept

    @property
    def exhausted(self) -> bool:
        """Whether measuring must stop."""
        return self._budget.nothing or self.remaining_s <= 0 or self.remaining_count <= 0
