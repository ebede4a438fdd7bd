"""Scheduling problems from networks and what is predicted of them on devices.

    data (predict --devices)                problem
    conv1   llvm 1: 90 µs, 2: 50 µs    →    conv1  modes llvm 1, llvm 2, cuda
            cuda 12 µs                      input → conv1, 600 kB
    concat  in place                        its readers wait for what it joins

What is computed in place by all devices is no call: its readers wait for what lies there. Where a
CPU is among several devices, it has the networks' inputs before anything begins, and wants their
outputs. A tensor is sent in plain form: turning it into that, and into the form in which it is read
there, counts as a part of the way. On one device a change of form is a part of the call that reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import get_args

from tilewright.core.element_types import element_type
from tilewright.core.errors import UsageError, close_matches
from tilewright.core.forms import PLAIN, parse_form
from tilewright.core.handoffs import ASSUMED, Handoff, HandoffKind
from tilewright.core.links import DeviceLink
from tilewright.core.planning import (
    PlanningCall,
    PlanningData,
    PlanningDevice,
    PlanningMode,
    PlanningTensor,
)
from tilewright.core.predictions import mark_of
from tilewright.core.records import Precision
from tilewright.kernels.base import CPU, SINGLE
from tilewright.plan.host_links import TABLE, hosts, told_links
from tilewright.plan.kernel_versions import kernel_names
from tilewright.plan.planning_data import IN_PLACE
from tilewright.plan.scheduling.parts import (
    Limits,
    Link,
    Mode,
    Objective,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.problem import SchedulingProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTerms:
    """What nobody can predict of a device, each None where it is not said: watts when idle and at
    most, bytes of memory that may be used, money for an hour, and the way between it and the host:
    seconds and bytes per second."""

    idle_w: float | None = None
    power_w: float | None = None
    memory_bytes: int | None = None
    price_per_hour: float | None = None
    link: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be least, within which limits, and the terms of devices by name. With
    `measured_links` the link of each device behind a tracker that has none in its terms is to be
    measured, or nothing is planned; without, it is measured where that can be done. Raises
    UsageError for an unknown objective."""

    objective: Objective = "latency"
    deadline_s: float | None = None
    energy_j: float | None = None
    terms: Mapping[str, DeviceTerms] = field(default_factory=dict[str, DeviceTerms])
    measured_links: bool = False

    def __post_init__(self) -> None:
        known = get_args(Objective)
        if self.objective not in known:
            raise UsageError(
                f"no objective is called {self.objective!r}.", hint=f"Known: {', '.join(known)}."
            )


def scheduling_problem(networks: Sequence[PlanningData], wanted: Wanted) -> SchedulingProblem:
    """The problem of running these networks at a time, each once, on the devices for which they
    were predicted; all of them on the same. Raises UsageError for terms of other devices, and as
    `SchedulingProblem` does."""
    devices = networks[0].devices
    names = [device.name for device in devices]
    for name in wanted.terms:
        if name not in names:
            raise UsageError(
                f"no device is called {name!r}. {close_matches(name, names)}",
                hint="The devices are those of --devices, by the same names.",
            )
    parts = [
        _Network(data=data, name=name, beside=len(networks) > 1)
        for data, name in zip(networks, titles(networks), strict=True)
    ]
    tasks: _Tasks = {}
    deadlines = {} if wanted.deadline_s is None else {"": wanted.deadline_s}
    return SchedulingProblem(
        name=" and ".join(titles(networks)),
        objective=wanted.objective,
        handoff_s=handoff_of(networks).seconds,
        devices=tuple(_device(d, wanted.terms.get(d.name, DeviceTerms())) for d in devices),
        calls=tuple(call for part in parts for call in part.calls(tasks)),
        waits=tuple(wait for part in parts for wait in part.waits()),
        links=tuple(_links(networks[0], wanted.terms)),
        limits=Limits(deadlines_s=deadlines, energy_j=wanted.energy_j),
    )


def handoff_of(networks: Sequence[PlanningData]) -> Handoff:
    """What a hand-off takes in a plan of these networks: between lanes of one process; between
    processes where there are several networks or several devices, which run in parts
    (docs/decisions/0091-plans-in-parts.md). As the first CPU knows it."""
    devices = networks[0].devices
    kind: HandoffKind = "parts" if len(networks) > 1 or len(devices) > 1 else "lanes"
    known = (each for device in devices for each in device.handoffs if each.kind == kind)
    return next(known, ASSUMED[kind])


def links_of(networks: Sequence[PlanningData], wanted: Wanted) -> tuple[DeviceLink, ...]:
    """The links of devices with their host that a plan of these networks counts with."""
    said = {name: terms.link for name, terms in wanted.terms.items() if terms.link is not None}
    return told_links(networks[0].devices, said)


def precisions_beside(network: PlanningData) -> dict[str, Precision]:
    """The precisions of the devices, by their names, that compute a network in single precision
    beside others in its own."""
    return {
        device.name: device.precision
        for device in network.devices
        if network.precision not in SINGLE and device.precision in SINGLE
    }


def titles(networks: Sequence[PlanningData]) -> list[str]:
    """What the networks are called, one that is there twice with a number."""
    titles: list[str] = []
    for data in networks:
        copies = sum(other.model == data.model for other in networks[: len(titles)])
        titles.append(f"{data.model} {copies + 1}" if copies else data.model)
    return titles


def prefixes(networks: Sequence[PlanningData]) -> list[str]:
    """What the names of each network's calls begin with: its own, where there are several."""
    return [f"{title}/" if len(networks) > 1 else "" for title in titles(networks)]


def _device(device: PlanningDevice, terms: DeviceTerms) -> ScheduleDevice:
    return ScheduleDevice(
        name=device.name,
        kind=device.kind,
        cores=device.threads if device.kind in CPU else 1,
        memory_bytes=terms.memory_bytes,
        power_w=terms.power_w,
        idle_w=terms.idle_w,
        price_per_hour=terms.price_per_hour,
        contention_bytes_per_s=device.contention_bytes_per_s,
    )


def way_to_host(data: PlanningData, name: str, *, back: bool = False) -> tuple[float, float] | None:
    """Seconds, and bytes per second, from its host to a device, or `back`; the host is the first
    CPU among the devices that is not behind a tracker, or one that is not among them. None where no
    way is known."""
    host = hosts(data.devices)[:1]
    if name in host:
        return 0.0, inf
    (device,) = (each for each in data.devices if each.name == name)
    if device.link is not None:
        known = device.link.back if back else device.link.there
        return known.latency_s, known.bytes_per_s
    for way in data.transfers:
        ends = way.origin in host and way.destination == name
        if ends and way.latency_s is not None and way.bytes_per_s:
            return way.latency_s, way.bytes_per_s
    return None


def _links(data: PlanningData, terms: Mapping[str, DeviceTerms]) -> Iterator[Link]:
    """The ways between devices: by what is said of them, and what else is known of their ways to
    the host."""
    processors = hosts(data.devices)
    for way in data.transfers:
        names = (way.origin, way.destination)
        said = {n: terms[n].link for n in names if n in terms and terms[n].link is not None}
        sides = (
            said.get(n)
            or ((0.0, inf) if n in processors else way_to_host(data, n, back=n == way.origin))
            for n in names
        )
        known = [side for side in sides if side is not None]
        latency_s, bytes_per_s = way.latency_s, way.bytes_per_s
        if said and len(known) == len(names):
            latency_s = sum(seconds for seconds, _ in known)
            bytes_per_s = 1 / sum(1 / speed for _, speed in known)
        if latency_s is not None and bytes_per_s:
            yield Link(
                origin=way.origin,
                destination=way.destination,
                latency_s=latency_s,
                bytes_per_s=bytes_per_s,
                link_is=None if said or way.link == TABLE else mark_of(way.source),
            )


_Tasks = dict[tuple[str, tuple[Mode, ...]], str]
"""What calls of one workload with the same modes are called, be they of one network or several."""


@dataclass(frozen=True, kw_only=True)
class _Network:
    """One of the networks; with others beside it, its name is before the names of its calls."""

    data: PlanningData
    name: str
    beside: bool

    def _called(self, call: str) -> str:
        return f"{self.name}/{call}" if self.beside else call

    @cached_property
    def host(self) -> str:
        """The CPU among several devices, which has the inputs and wants the outputs, one that is
        not behind a tracker before others; else empty."""
        several = len(self.data.devices) > 1
        cpus = [each.name for each in self.data.devices if several and each.kind in CPU]
        return next(iter((*hosts(self.data.devices), *cpus)), "") if cpus else ""

    @cached_property
    def _tensors(self) -> dict[str, PlanningTensor]:
        return {tensor.name: tensor for tensor in self.data.tensors}

    @cached_property
    def _bytes(self) -> dict[str, int]:
        return {tensor.name: tensor.bytes for tensor in self.data.tensors}

    @cached_property
    def _writer(self) -> dict[str, PlanningCall]:
        return {call.output: call for call in self.data.calls}

    @cached_property
    def _free(self) -> set[str]:
        """The calls that all devices do in place."""
        in_place = ({m.implementation == IN_PLACE for m in c.modes} for c in self.data.calls)
        each = zip(self.data.calls, in_place, strict=True)
        return {call.name for call, kinds in each if kinds == {True}}

    def _sources(self, tensor: str) -> dict[str, int]:
        """The calls whose results a tensor is made of, with the bytes of each."""
        call = self._writer.get(tensor)
        if call is None:
            return {f"input {tensor}": self._bytes[tensor]} if self.host else {}
        if call.name not in self._free:
            return {call.name: self._bytes[tensor]}
        return {name: size for t in call.inputs for name, size in self._sources(t).items()}

    def calls(self, tasks: _Tasks) -> Iterator[ScheduledCall]:
        """The calls in order, the inputs before and the outputs behind them; `tasks` are known of
        other networks, and what is new is added."""
        answers = {name for tensor in self.data.outputs for name in self._sources(tensor)}
        if self.host:
            for tensor in self.data.inputs:
                yield self._at_host(f"input {tensor}", self._bytes[tensor])
        for call in self.data.calls:
            if call.name not in self._free:
                named = zip(call.modes, kernel_names(call), strict=True)
                modes = tuple(self._mode(call, mode, kernel) for mode, kernel in named)
                yield ScheduledCall(
                    name=self._called(call.name),
                    network=self.name,
                    task=tasks.setdefault((call.task, modes), f"{call.task} {len(tasks)}"),
                    modes=modes,
                    output_bytes=self._stored_bytes(call),
                    answer=call.name in answers and not self.host,
                    crossing_s=self._crossing_s(call),
                )
        if self.host:
            yield self._at_host("outputs", 0, answer=True)

    def _stored_bytes(self, call: PlanningCall) -> int:
        """What a call's result takes in the memory of a device: the most of its forms' types. On
        its way to another device it is plain, in its own type."""
        tensor = self._tensors[call.output]
        own = element_type(tensor.dtype)
        forms = {parse_form(mode.forms[-1]) for mode in call.modes if mode.forms}
        types = [element_type(form.element(own.name)) for form in forms]
        return max((tensor.bytes * each.bytes // own.bytes for each in types), default=tensor.bytes)

    def _at_host(self, name: str, size: int, *, answer: bool = False) -> ScheduledCall:
        mode = Mode(device=self.host, latency_s=0.0, low_s=0.0, high_s=0.0, energy_j=0.0)
        return ScheduledCall(
            name=self._called(name),
            network=self.name,
            modes=(mode,),
            output_bytes=size,
            answer=answer,
        )

    def waits(self) -> Iterator[Wait]:
        """Each call waits for those whose results it reads."""
        read = {call.name: call.inputs for call in self.data.calls if call.name not in self._free}
        if self.host:
            read["outputs"] = self.data.outputs
        for name, tensors in read.items():
            sources = {b: size for t in tensors for b, size in self._sources(t).items()}
            for before, size in sources.items():
                yield Wait(before=self._called(before), after=self._called(name), bytes=size)

    def _mode(self, call: PlanningCall, mode: PlanningMode, kernel: str) -> Mode:
        """A way to compute a call, the changes of form on the same device among it."""
        changes_s = self._changes_s(call, mode)
        return Mode(
            device=mode.device,
            cores=mode.cores,
            latency_s=mode.latency_s + changes_s,
            low_s=mode.low_s + changes_s,
            high_s=mode.high_s + changes_s,
            source=mode.source,
            kernel=kernel,
            energy_j=mode.energy_j,
            weight_bytes=mode.weight_bytes,
            workspace_bytes=mode.workspace_bytes,
            moved_bytes=mode.moved_bytes,
            energy_is=mode.energy_is,
            memory_is=mode.memory_is,
            moved_is=mode.moved_is,
        )

    def _changes_s(self, call: PlanningCall, mode: PlanningMode) -> float:
        """What turning the operands into the forms that a mode reads takes there, and an output of
        the network into plain form; as if it were divided among all cores without loss."""
        if mode.implementation == IN_PLACE:
            return 0.0
        changes = [
            (tensor, self._form_on(mode.device, tensor), mode.forms[port])
            for tensor, port in zip(call.inputs, call.ports, strict=True)
        ]
        if call.output in self.data.outputs:
            changes.append((call.output, mode.forms[-1], PLAIN.text))
        all_s = sum(self._change_s(mode.device, *change) for change in changes)
        most = max(each.cores for each in call.modes if each.device == mode.device)
        return all_s * most / mode.cores

    def _form_on(self, device: str, tensor: str) -> str:
        """The form in which a tensor is written on a device; plain where it comes from elsewhere,
        empty where it is made in place, in whatever form that was."""
        call = self._writer.get(tensor)
        mode = next((m for m in call.modes if m.device == device), None) if call else None
        if mode is None:
            return PLAIN.text
        return mode.forms[-1] if mode.forms else ""

    @cached_property
    def _conversions(self) -> dict[tuple[str, str, str, str], float]:
        return {(c.device, c.tensor, c.before, c.after): c.latency_s for c in self.data.conversions}

    def _change_s(self, device: str, tensor: str, before: str, after: str) -> float:
        """What a change of form takes, by way of the plain one."""
        if before in ("", after):
            return 0.0
        known, plain = self._conversions, PLAIN.text
        leaving_s = known.get((device, tensor, before, plain), 0.0)
        return leaving_s + known.get((device, tensor, plain, after), 0.0)

    def _crossing_s(self, call: PlanningCall) -> float:
        """The most that changes of form on both sides of a way between devices take."""
        devices = {mode.device for mode in call.modes}
        leaving = {
            device: self._change_s(
                device, call.output, self._form_on(device, call.output), PLAIN.text
            )
            for device in devices
        }
        arriving = {device: self._arriving_s(device, call.output) for device in devices}
        ways = ((a, b) for a in devices for b in devices if a != b)
        return max((leaving[a] + arriving[b] for a, b in ways), default=0.0)

    def _arriving_s(self, device: str, tensor: str) -> float:
        """What turning a tensor from plain form into those that are read of it on a device takes
        at most."""
        return max(
            (
                self._change_s(device, tensor, PLAIN.text, mode.forms[port])
                for call in self._readers.get(tensor, ())
                for port in (call.ports[call.inputs.index(tensor)],)
                for mode in call.modes
                if mode.device == device and mode.forms
            ),
            default=0.0,
        )

    @cached_property
    def _readers(self) -> dict[str, list[PlanningCall]]:
        found: dict[str, list[PlanningCall]] = {}
        for call in self.data.calls:
            for tensor in call.inputs:
                found.setdefault(tensor, []).append(call)
        return found
