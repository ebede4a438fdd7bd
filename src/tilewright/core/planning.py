"""What a planner reads of a network and the devices it may run on: fields of the JSON contract, as
in `predictions`.

    data.calls[3].modes[1].latency_s       the third call on the second device
    data.transfers[0].bytes_per_s          from one device to the other

Numbers are seconds, joules and bytes. What nobody knows is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from tilewright.core.display import Displayed
from tilewright.core.handoffs import Handoff
from tilewright.core.links import DeviceLink
from tilewright.core.predictions import Mark, NetworkForecast, Source
from tilewright.core.records import KnobValue, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningDevice:
    """A device that calls may run on. `name` is the target as it was asked for, `threads` are those
    of a CPU or the multiprocessors of a GPU. `network` is what the whole network takes there, None
    where `refused` says why it cannot run there as a whole; `energy_reason` says why energies are
    unknown. Calls that run at a time on cores of it and stream `contention_bytes_per_s` each take
    twice as long as alone; None where nothing is known of that. A tensor takes at least
    `host_latency_s` + bytes / `host_bytes_per_s` between it and its host; None where it is a host,
    or nobody knows. `link` says whether that was measured, and what the way back takes.
    `handoffs` are what handing over between its cores takes, by lanes and by parts, measured or
    assumed; none of what is no CPU. `precision` is the one in which it computes: the network's, or
    float32 where its kind has no kernels in that; None where a table tells of it."""

    name: str
    kind: str
    device_class: str
    threads: int
    network: NetworkForecast | None
    refused: str = ""
    energy_reason: str = ""
    contention_bytes_per_s: float | None = None
    host_latency_s: float | None = None
    host_bytes_per_s: float | None = None
    link: DeviceLink | None = None
    handoffs: tuple[Handoff, ...] = ()
    precision: Precision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningMode:
    """One way to compute a call: on so many cores of `device` (one, where it is no CPU), by an
    implementation in its settings, which reads and writes these forms (arguments, then the
    result). Seconds of the call alone with the interval that contains 90 % of such, their source,
    joules; bytes of the packed weights and of the memory that the kernel needs beside its operands,
    and those that come from memory where others run beside it. `energy_is`, `memory_is` and
    `moved_is` say what these are, None where nobody does; `source` says it of the time.

    The implementation `in place` is nothing to do: the result lies in its operands' memory, if they
    are on the same device."""

    device: str
    cores: int = 1
    implementation: str
    settings: dict[str, KnobValue] = field(default_factory=dict[str, KnobValue])
    forms: tuple[str, ...] = ()
    latency_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    source: Source = "exact"
    energy_j: float | None = None
    weight_bytes: int = 0
    workspace_bytes: int = 0
    moved_bytes: int = 0
    energy_is: Mark | None = None
    memory_is: Mark | None = None
    moved_is: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningCall:
    """A call of the network, in an order in which calls may run: the key of its task, the tensors
    that it reads (constants left out) and the one that it writes, and modes of the devices that can
    compute it, those of a device by rising numbers of cores; where there are several kernels on as
    many cores, the fastest first, and others that move less. `ports` says for each of the inputs
    which of a mode's forms is its own."""

    name: str
    task: str
    family: str
    inputs: tuple[str, ...]
    ports: tuple[int, ...] = ()
    output: str
    modes: tuple[PlanningMode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningTensor:
    """A tensor between calls, or an input or output of the network."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What it takes on a device to copy a tensor from one form into another."""

    device: str
    tensor: str
    before: str
    after: str
    latency_s: float
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The way of a tensor in plain form from one device to another: it takes
    `latency_s` + bytes / `bytes_per_s`, as measured where `source` is exact, else at least. Both
    are None where neither a measurement nor a datasheet says how the two are connected; `link` says
    what they are of."""

    origin: str
    destination: str
    latency_s: float | None
    bytes_per_s: float | None
    link: str
    source: Source = "roofline"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanningData(Displayed):
    """A network and the devices it may run on, as `tilewright predict --devices` tells them.

    `inputs` and `outputs` are tensors of the network, plain ones. A change of form that is not
    among the `conversions` costs nothing. `precision` is the one in which it was predicted.
    """

    model: str
    settings: str
    devices: tuple[PlanningDevice, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[PlanningCall, ...]
    tensors: tuple[PlanningTensor, ...]
    conversions: tuple[Conversion, ...]
    transfers: tuple[Transfer, ...]
    precision: Precision = get_args(Precision)[0]
