"""What a run may spend: wall clock or candidate measurements, all runs on a network together."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from tilewright.core.errors import UsageError
from tilewright.core.records import Run
from tilewright.core.units import parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A total: `seconds` of wall clock or `measurements`; the other one is infinite."""

    seconds: float = inf
    measurements: float = inf

    @property
    def nothing(self) -> bool:
        """Whether nothing may be measured."""
        return self.seconds <= 0 or self.measurements <= 0

    def part(self, share: float) -> Limit:
        """A share of it, at least one measurement of a budget that is not empty."""
        count = self.measurements * share
        return Limit(
            seconds=self.seconds * share,
            measurements=max(1.0, count // 1) if 0 < count < inf else count,
        )


def parse_budget(text: str | float) -> Limit:
    """`10m`, `90s`, `1h30m` are wall clock; a bare number counts candidate measurements.

    Raises UsageError for anything else.
    """
    if isinstance(text, str):
        seconds = parse_duration(text.strip())
        if seconds is not None:
            return Limit(seconds=seconds)
    try:
        count = -1.0 if isinstance(text, bool) else float(text)
    except (ValueError, OverflowError, TypeError):
        count = -1.0
    if not isfinite(count) or count < 0 or count != int(count):
        raise UsageError(
            f"budget {text!r} is neither a duration nor a number of measurements",
            hint="Examples: --budget 90s, --budget 10m, --budget 1h30m, --budget 500, --budget 0",
        )
    return Limit(measurements=count)


class Budget:
    """What a command may spend, opened once, and where it went.

        budget.expect("finish", seconds=12.0)
        with budget.phase("search", keep=0.4):
            while not budget.exhausted:
                …
                budget.measured()
        with budget.phase("finish"):
            …

    Work belongs to phases. A phase that lies in another counts for itself alone. What later phases
    are expected to take is kept back until they begin; a phase may keep back a share of what is
    left for everything after it. All of it is seen in `remaining_s` and `remaining_count`.
    """

    def __init__(
        self,
        limit: Limit,
        earlier: Iterable[Run] = (),
        *,
        began_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.count = 0
        self._clock = clock
        self._began_s = clock() if began_s is None else began_s
        self._earlier = [*earlier]
        self._kept: dict[object, Limit] = {}
        self._seconds = defaultdict[str, float](float)
        # of each phase that runs, outermost first: seconds that count for phases inside it
        self._inner_s: list[float] = []

    def charge(self, earlier: Iterable[Run]) -> None:
        """Count what earlier runs spent of the same limit."""
        self._earlier += earlier

    def measured(self, count: int = 1) -> None:
        """Count candidates that were measured or failed."""
        self.count += count

    def expect(self, phase: str, *, seconds: float = 0.0, measurements: int = 0) -> None:
        """Keep back what a phase will take, until it begins; replaces what was expected of it."""
        self._kept[phase] = Limit(seconds=seconds, measurements=measurements)

    @contextmanager
    def phase(self, name: str, *, keep: float = 0.0) -> Generator[None]:
        """Count the block's wall clock for a phase, whatever happens inside; what was expected of
        it is free now. `keep` is as in `keeping`."""
        self._kept.pop(name, None)
        began_s = self._clock()
        self._inner_s.append(0.0)
        try:
            with self.keeping(keep):
                yield
        finally:
            whole_s = self._clock() - began_s
            self._seconds[name] += max(0.0, whole_s - self._inner_s.pop())
            if self._inner_s:
                self._inner_s[-1] += whole_s

    @contextmanager
    def keeping(self, share: float) -> Generator[None]:
        """Keep back a share of what is left now, for what comes after the block."""
        left_s, left = max(0.0, self.remaining_s), max(0.0, self.remaining_count)
        block = object()
        self._kept[block] = Limit(
            seconds=share * left_s if isfinite(left_s) else 0.0,
            measurements=int(share * left) if isfinite(left) else 0,
        )
        try:
            yield
        finally:
            del self._kept[block]

    def credit(self, name: str, seconds: float) -> None:
        """Count seconds of the phase that runs for another one: what a part of it says it took."""
        self._seconds[name] += seconds
        if self._inner_s:
            self._inner_s[-1] += seconds

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        """Wall clock by phase so far; `overhead` is what belongs to none."""
        return {
            **self._seconds,
            "overhead": max(0.0, self.elapsed_s - sum(self._seconds.values())),
        }

    @property
    def nothing(self) -> bool:
        """Whether nothing may be measured."""
        return self.limit.nothing

    @property
    def elapsed_s(self) -> float:
        """Wall clock of this run so far."""
        return self._clock() - self._began_s

    @property
    def remaining_s(self) -> float:
        """Seconds left for measuring."""
        kept_s = sum(kept.seconds for kept in self._kept.values())
        return self.limit.seconds - self._spent.seconds - kept_s

    @property
    def remaining_count(self) -> float:
        """Measurements left."""
        kept = sum(kept.measurements for kept in self._kept.values())
        return self.limit.measurements - self._spent.measurements - kept

    @property
    def _spent(self) -> Limit:
        """What this run and earlier ones took of the limit."""
        return Limit(
            seconds=self.elapsed_s + sum(run.spent_s for run in self._earlier),
            measurements=self.count + sum(run.measurements + run.failures for run in self._earlier),
        )

    @property
    def told(self) -> dict[str, Any]:
        """What progress tells of it, by the names of `TuningProgress`."""
        seconds, count = self.limit.seconds, self.remaining_count
        return {
            "remaining_s": self.remaining_s if isfinite(seconds) else None,
            "limit_s": seconds if isfinite(seconds) else None,
            "remaining": int(count) if isfinite(count) else None,
            "spent": self.spent,
        }

    @property
    def spent(self) -> float:
        """The part of the limit that is spent, from 0 to 1, earlier runs included."""
        if self.nothing:
            return 1.0
        took, limit = self._spent, self.limit
        return min(1.0, max(took.seconds / limit.seconds, took.measurements / limit.measurements))

    @property
    def exhausted(self) -> bool:
        """Whether measuring must stop."""
        return self.nothing or self.remaining_s <= 0 or self.remaining_count <= 0
