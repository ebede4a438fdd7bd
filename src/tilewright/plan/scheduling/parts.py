"""The parts of a scheduling problem: devices, calls with ways to compute each, what waits for what.

    devices   llvm: 2 cores         cuda: 1 place, 80 GB
    calls     conv1   on 1 core of llvm 90 µs, on 2 cores 50 µs, on cuda 12 µs
              conv2   …
    waits     conv1 → conv2, 3 MB
    links     llvm → cuda   10 µs + bytes ÷ 20 GB/s

The problem of the assignment of layouts ends with one candidate for each call; here each call has
several *modes*: a device, how many of its cores, and a kernel. A mode occupies its cores from begin
to end. Calls of several networks may be in one problem: each carries the name of its own.

Numbers are seconds, joules, bytes and watts. Where nobody knows an energy, it is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilewright.core.predictions import Mark, Source, mark_of

Objective = Literal["latency", "throughput", "energy", "price"]
"""What is to be least: seconds until the last call ends; seconds between two answers where requests
follow each other without pause; joules of one inference; money for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDevice:
    """Something that computes. `cores` are those of a CPU that may be given to calls one by one; a
    GPU that runs one kernel after the other has one.

    `memory_bytes` bounds weights and tensors that lie there at a time, `bytes_per_s` what all calls
    together may move, `power_w` what the device may draw; None is no limit. It draws `idle_w`
    whether it computes or not, None where nobody knows; an hour of it costs `price_per_hour`.
    Calls that run at a time slow each other down by what they move, two that move
    `contention_bytes_per_s` each to twice their time alone (see `cost.contention`); not at all
    where it is None.
    """

    name: str
    kind: str = "cpu"
    cores: int = 1
    memory_bytes: int | None = None
    bytes_per_s: float | None = None
    power_w: float | None = None
    idle_w: float | None = None
    price_per_hour: float | None = None
    contention_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to compute a call: on so many cores of a device, by a `kernel`, which is a name for
    people.

    `latency_s` is that of the call alone, `low_s` to `high_s` the interval that contains 90 % of
    such, `source` where they are from. `energy_j` is what the call draws beyond an idle device,
    `weight_bytes` lie on the device all the time, `workspace_bytes` while it runs, `moved_bytes`
    go through its memory. What these numbers are is said by `energy_is`, `memory_is` (both sizes)
    and `moved_is`, None where nobody says it.
    """

    device: str
    cores: int = 1
    latency_s: float
    low_s: float
    high_s: float
    source: Source = "exact"
    kernel: str = ""
    energy_j: float | None = None
    weight_bytes: int = 0
    workspace_bytes: int = 0
    moved_bytes: int = 0
    energy_is: Mark | None = None
    memory_is: Mark | None = None
    moved_is: Mark | None = None

    @property
    def marks(self) -> dict[str, Mark | None]:
        """What its numbers are: latency, energy, memory and bandwidth; None for what is unknown."""
        return {
            "latency": mark_of(self.source),
            "energy": None if self.energy_j is None else self.energy_is,
            "memory": self.memory_is,
            "bandwidth": self.moved_is,
        }

    @property
    def power_w(self) -> float:
        """What the call draws beyond an idle device, 0 where nobody knows."""
        return (self.energy_j or 0.0) / self.latency_s if self.latency_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """What the call moves in a second."""
        return self.moved_bytes / self.latency_s if self.latency_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledCall:
    """A call and its modes; `network` is the one it is of, and calls of equal `task` are alike: the
    same work with the same modes. `output_bytes` is its result, which lies where it was computed
    until the last call that reads it has ended, and after the end where it is an answer. It takes
    `crossing_s` beside what a link takes where it goes to another device: changes of form, say."""

    name: str
    modes: tuple[Mode, ...]
    network: str = ""
    task: str = ""
    output_bytes: int = 0
    answer: bool = False
    crossing_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Calls that may run as one, in modes of its own: convolutions of one image, say, whose output
    channels one kernel computes. None of them waits for another."""

    calls: tuple[str, ...]
    modes: tuple[Mode, ...]

    @property
    def name(self) -> str:
        """What the call is named that they become: "a + b"."""
        return " + ".join(self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The call `after` reads `bytes` of what the call `before` wrote."""

    before: str
    after: str
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The way from a device to another: it takes `latency_s` + bytes / `bytes_per_s`, one transfer
    at a time. `link_is` says what these are: measured, predicted, a bound, or None where somebody
    said them."""

    origin: str
    destination: str
    latency_s: float
    bytes_per_s: float
    link_is: Mark | None = None

    def transfer_s(self, size_bytes: int) -> float:
        """Seconds for so many bytes."""
        return self.latency_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan must keep: the end of each network's last call in seconds (`deadlines_s` by
    network, the name empty for all), and joules of an inference."""

    deadlines_s: Mapping[str, float]
    energy_j: float | None = None


NO_LIMITS = Limits(deadlines_s={})
