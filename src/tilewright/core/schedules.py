"""What `plan` answers: what runs where, beside what, and whether there was anything to gain; fields
of the JSON contract.

Numbers are seconds, joules, bytes, watts. What nobody knows is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tilewright.core.display import Displayed
from tilewright.core.handoffs import Handoff
from tilewright.core.links import DeviceLink
from tilewright.core.predictions import Mark, Source
from tilewright.core.records import Precision

PLAN_FILE = "schedule.json"
"""What a plan is called in the folder that `plan` writes."""


def is_plan(place: Path) -> bool:
    """Whether a place is what `plan` wrote: its folder, or a file."""
    return place.suffix == ".json" or (place / PLAN_FILE).is_file()


Second = Literal["energy", "price", "memory"]
"""What is weighed against latency: joules or money of an inference, bytes of all devices."""

RunMode = Literal["auto", "sequential", "parallel"]
"""One call after the other on all cores, as a plan says, or the faster of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSlot:
    """A call of a network by a kernel on these cores of a device, from its begin to its end;
    `source` says where its time is from, and `marks` what its latency, energy, memory and bandwidth
    are: measured, predicted, a bound, or None where nobody says so or knows the number."""

    call: str
    network: str
    device: str
    cores: tuple[int, ...]
    begin_s: float
    end_s: float
    kernel: str = ""
    source: Source = "exact"
    marks: dict[str, Mark | None] = field(default_factory=dict[str, "Mark | None"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTransfer:
    """The result of a call goes from a device to another; `link_is` says what its time is:
    measured, predicted, a bound, or None where somebody said it."""

    call: str
    origin: str
    destination: str
    begin_s: float
    end_s: float
    link_is: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What a schedule takes of a device: `busy` is the share of its cores' time in which they
    compute; the peaks count everything at a time, that of power is None where nobody knows what the
    device or a call there draws; limits are None where there are none."""

    name: str
    kind: str
    cores: int
    busy: float
    peak_memory_bytes: int
    memory_bytes: int | None
    peak_power_w: float | None
    power_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCheck:
    """The error of a network of a plan in its precision against float32: of the largest value of
    the `output` where that is most, with the least ratio of signal to noise of an output, and what
    is `allowed`; `right` says whether it is within."""

    network: str
    precision: Precision
    max_rel_error: float
    sqnr_db: float | None
    output: str
    allowed: float
    right: bool


MEASURE: dict[Second, str] = {"energy": "energy_j", "price": "price", "memory": "memory_bytes"}
MEASURES = ("latency_s", *MEASURE.values())
"""What alternatives are compared by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A schedule that was considered, on so many `cores` of these devices, by the planner that made
    it. The numbers are those of one inference where calls that run at a time slow each other down
    as predicted; `memory_bytes` is the sum of the peaks of all devices. None is what nobody knows.
    `chosen` is the plan itself."""

    planner: str
    devices: tuple[str, ...]
    cores: int
    latency_s: float
    period_s: float
    energy_j: float | None
    price: float | None
    memory_bytes: int
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergingGain:
    """What merging calls promises: the plan with merged calls is `gain` times as fast as the one
    with all of them apart, from `gain_low` to `gain_high` by the intervals of the times (as those
    of `ScheduleResult`), the numbers above 1 where merging is faster. `doubt` says why it is not
    sure that merging gains, and is empty where it is sure."""

    gain: float
    gain_low: float
    gain_high: float
    doubt: str = ""

    @property
    def sure(self) -> bool:
        """Whether merging gains surely."""
        return not self.doubt


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduleResult(Displayed):
    """The result of `plan` of a scheduling problem.

    `objective` is what was to be least, `value` what the schedule has of it, in seconds, joules or
    money; no schedule has less than `bound`, and `gap` is (value − bound) / value. `planner` is the
    one that made it. `latency_s`, `period_s` (between two answers where requests follow each other
    without pause), `energy_j` (None where `energy_reason` says why) and `price` are those of one
    inference.

    What was there to gain: `sequential` is the value of running one call after the other, None
    where no such schedule was found. `width` calls at most can run at a time as far as they wait
    for each other, `work_over_span` in the mean: the sum of all fastest times by the longest way.
    The schedule is `gain` times as fast as one call after the other as expected, and
    `gain_at_upper_ends` times where all calls take the upper ends of their intervals, and
    `gain_beside` times where calls that run at a time slow each other down as predicted; None where
    nobody knows how they do. From `gain_low` to `gain_high` it is where times on each number of
    cores of each device lie at an end of their intervals, all of that number together and each
    number by itself. `handoff` is what going on on other cores takes in a plan of networks, and
    whether that was measured; None of a problem that says so itself. `links` are those of its
    devices with this machine, and whether they were measured.

    `front` are, of the `considered` schedules that the planner found on its way, those that no
    other one beats in latency, energy, price and memory alike, and the plan in any case; empty for
    a simulation. Where a front was asked for, `front_of` says of which of these against latency: it
    was searched for, and these two are compared.

    `precisions` says by its name in which precision each network was planned; of a problem that
    somebody wrote it is empty. `device_precisions` says by the networks' names the same of the
    devices, by theirs, that compute a network in another one: in float32, where their kind has no
    kernels in its own.

    `merging` is what merged calls promise, whether or not the plan has them; None where nobody
    asked for them, nothing can be merged, or something else than latency was to be least.
    """

    name: str
    objective: str
    planner: str
    value: float
    bound: float
    gap: float
    solve_s: float
    latency_s: float
    period_s: float
    energy_j: float | None
    energy_reason: str
    price: float | None
    sequential: float | None
    width: int
    work_over_span: float
    slots: tuple[ScheduledSlot, ...]
    transfers: tuple[ScheduledTransfer, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    gain: float | None = None
    gain_at_upper_ends: float | None = None
    gain_beside: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    handoff: Handoff | None = None
    links: tuple[DeviceLink, ...] = ()
    front: tuple[Alternative, ...] = ()
    considered: int = 0
    front_of: str = ""
    note: str = ""
    details: dict[str, float] = field(default_factory=dict[str, float])
    precisions: dict[str, Precision] = field(default_factory=dict[str, Precision])
    device_precisions: dict[str, dict[str, Precision]] = field(
        default_factory=dict[str, dict[str, Precision]]
    )
    merging: MergingGain | None = None

    @property
    def most_gain(self) -> float | None:
        """How many times as good as sequential any schedule can be at most."""
        return None if self.sequential is None or not self.bound else self.sequential / self.bound
