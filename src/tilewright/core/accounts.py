"""What an answer about a network tells call by call, round by round, and beside its last run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """One call of a network's plan; calls are listed in order of execution.

    `kind` is kernel, conversion (a tensor that is copied into another layout or element type) or
    transfer (to another device). `task` and `layouts` are `key` and `layouts` of the call's task;
    the last layout is the result's, as are `shape` and the element type `dtype`. `inputs` names the
    calls whose results it reads. `latency_s` is its kernel alone, `in_place_s` the call in the
    running network, None for what was not measured. `alive_bytes` are the intermediate tensors that
    must be in memory while it runs.
    """

    name: str
    task: str
    operator: str
    implementation: str
    inputs: tuple[str, ...]
    layouts: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    latency_s: float | None
    in_place_s: float | None
    alive_bytes: int
    kind: str = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """What one of several networks that were timed in turn took: the medians of its rounds in
    seconds, in order."""

    name: str
    rounds_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """A task whose kernel is another one than when the network shipped last.

    `before` and `after` are implementation, settings and layouts as text; `before_s` and `after_s`
    one call in the running network, then and now, None where that was not kept.
    """

    task: str
    before: str
    after: str
    before_s: float | None
    after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """What the run before this one shipped for the network: when (seconds since 1970), how fast it
    was then, and the tasks whose kernel has changed since."""

    at: float
    latency_s: float
    changes: tuple[KernelChange, ...] = ()
