"""What networks take beside each other; fields of the JSON contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.core.display import Displayed
from tilewright.core.records import KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBeside:
    """A call of the network in its place: seconds alone, and while something ran beside."""

    name: str
    alone_s: float
    beside_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideResult:
    """What a network and its `partner`, which ran on `threads` other cores meanwhile, take alone
    and beside each other; medians of rounds in turn.

    Slowdowns are how many times as long either takes beside the other; `spread` is by how much
    those of the rounds differ at most. `joint_gain` is how many times as much both get done in a
    second as one after the other on these same cores: the sum of the speeds that are left to them.
    """

    partner: str
    threads: int
    alone_s: float
    beside_s: float
    slowdown: float
    partner_alone_s: float
    partner_beside_s: float
    partner_slowdown: float
    spread: float
    joint_gain: float
    calls: tuple[CallBeside, ...] = ()


BestFor = Literal["alone", "one core", "beside", "least moved"]
"""What a version of a kernel is best for: fastest by itself on all threads, by itself on one core,
or while the partner runs; or moving the fewest bytes from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelVersion:
    """A version of a task's kernel and what it is `best` for, among those that were timed in all
    circumstances; seconds of a call in each of these, None where it could not be timed, and the
    bytes that come from memory where something else runs beside it, as counted."""

    implementation: str
    settings: dict[str, KnobValue] = field(default_factory=dict[str, KnobValue])
    best: tuple[BestFor, ...]
    alone_s: float | None
    one_core_s: float | None
    beside_s: float | None
    moved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVersions:
    """The versions of a task's kernel (`count` times in the network; `key` is its workload) that
    are best for something. `gain` is how many times as long the version that is fastest alone takes
    beside the partner as the one that is fastest there, with the interval of both medians: 1 where
    they are the same, None where one was not timed."""

    task: str
    key: str
    count: int
    versions: tuple[KernelVersion, ...]
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VersionsResult(Displayed):
    """What `tune --beside` found: versions of each task's kernel on `threads` threads while
    `partner` ran on `partner_threads` other cores. `device_class` is where the times beside it are
    kept in the database. `unmeasured` are tasks of which nothing could be timed; `converged` says
    that no task is expected to gain anything worth its time."""

    model: str
    partner: str
    threads: int
    partner_threads: int
    device_class: str
    tasks: tuple[TaskVersions, ...]
    unmeasured: tuple[str, ...] = ()
    converged: bool = False
    measurements: int = 0
    failures: int = 0
    elapsed_s: float = 0.0
