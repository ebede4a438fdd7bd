"""From how many cores on more do not pay; fields of the JSON contract."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.display import Displayed


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOnCores:
    """A kernel on a number of `cores`: seconds as told from its time on one core, with the ends of
    an interval that holds 90 % of such times, and as measured (None where they were not).
    `extrapolated` says that this process has not so many cores."""

    cores: int
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float | None
    extrapolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SufficientCores:
    """The turning point of a kernel: the fewest cores that take at most `gain` longer than the
    fastest number of them, as a part of its time.

    `measured` is that of the times that were measured, `told` the one that is predicted from the
    time on one core for the same numbers of cores, and `steps` says how many of these numbers lie
    between the two; all three are None where fewer than two numbers of cores were measured.
    `predicted` is the one of the whole grid, `low` and `high` are those that the intervals of the
    times allow; `extrapolated` says that numbers of the grid are more cores than this process has.
    """

    gain: float
    measured: int | None
    told: int | None
    steps: int | None
    predicted: int
    low: int
    high: int
    extrapolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CoresRow:
    """A row of the grid: a task (`count` times in the network) of an `implementation`, `beside` a
    neighbour or `none`, with controls `held` (empty where they are as they are).

    `source` says what the predictions start from: `measured` here on one core, or `exact`,
    `interpolated`, `model` or `roofline` as in `predict`. `contention_bytes_per_s` is the scale by
    which the neighbour costs what was measured on one core (docs/concepts/neighbours.md), None
    where it costs nothing or was not measured, and where one of the two streams nothing.
    """

    task: str
    count: int
    implementation: str
    beside: str
    held: str
    source: str
    times: tuple[TimeOnCores, ...]
    points: tuple[SufficientCores, ...]
    contention_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CoresResult(Displayed):
    """`tilewright study cores`: `machine_cores` are those that this process is allotted, `cores`
    the numbers of the grid. `unmeasured` are tasks that the budget left no time for, or that failed
    to run, under one setting of the controls at least; they are predicted alone, and where a
    control is held they have no rows."""

    model: str
    machine_cores: int
    cores: tuple[int, ...]
    rows: tuple[CoresRow, ...]
    unmeasured: tuple[str, ...] = ()
