"""The networks of a plan in parts, each compiled for the device and the cores that the plan names.

parts = PlanParts(read_plan(folder), store, scratch)
parts.way(plan.schedule)      as it is planned
parts.alone("llvm")           all calls one after the other on one device
parts.left({"rpc:pi"}, {})    planned again without one of the devices
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path

from tilewright.core.errors import ModelError, TargetError, first_line
from tilewright.core.events import EventSink, Note, Stage, discard
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Placement
from tilewright.deploy.compiled_parts import CompiledPart, Way
from tilewright.deploy.plan_models import (
    allowed_in,
    merging,
    opened,
    planned_source,
    require_planned,
    with_planned_kernels,
)
from tilewright.deploy.plan_places import computes, has_all, on_cores, placements_in
from tilewright.graph.arrange import arrange, copying, same_memory
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import Array, fresh_name
from tilewright.graph.parts import Part, Place, cut
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.siblings import stacked_name
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import default_settings, in_sequence, with_each
from tilewright.kernels.stored_settings import refusals
from tilewright.measure.networks import ToCompile, compile_all
from tilewright.measure.targeting import (
    in_this_process,
    open_networks,
)
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.scheduling.parts import NO_LIMITS, Mode, ScheduledCall
from tilewright.plan.scheduling.plan_file import Plan, PlannedKernel, PlannedNetwork
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.sources import NetworkSource, with_fewest_calls
from tilewright.store.base import Store
from tilewright.store.known_candidates import best_known, checked_settings, defaults

_REPLANNER = "heft"
_Made = tuple[PreparedNetwork, NetworkPlan]
"""A network cut into calls for a device, and its kernels there."""


class PlanParts:
    """What is compiled of a plan, into `folder`, and can be compiled of it in another way.

    `placements` are the devices that are here or answer, by the plan's names; whoever compiles for
    devices that are elsewhere gives them. Raises ModelError for a plan without networks, or of
    networks that have changed, or are in another precision by now; TargetError for one of another
    kind of machine, of more cores than there are, and for devices that do not answer or cannot run
    parts.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        folder: Path,
        *,
        tracker: str | None = None,
        events: EventSink = discard,
        placements: Mapping[str, Placement] | None = None,
    ) -> None:
        if not plan.networks:
            raise ModelError("the plan is of a problem written by hand", hint="Plan a MODEL.")
        self.plan, self._folder, self._events = plan, folder, events
        self._numbers = count()
        self._max_errors = {each.name: allowed_in(each) for each in plan.networks}
        self.placements = dict(placements or placements_in(plan, tracker))
        self._made: dict[tuple[str, str], _Made] = {}
        self._fewer: dict[tuple[str, str, int], Mapping[TaskKey, Candidate]] = {}
        self._sources: dict[str, NetworkSource] = {}
        self._store = store
        for named in plan.networks:
            self._prepare(named)

    def _prepare(self, named: PlannedNetwork) -> None:
        """Cut a network into calls for each device, with the settings that it was planned with."""
        self._events(Stage(name="import", detail=named.model))
        source = planned_source(self.plan, named)
        max_error = self._max_errors[named.name]
        self._sources[named.name] = source
        refused = dict[str, ModelError]()
        for device, placement in self.placements.items():
            try:
                made = opened(named, source, device, placement, self._store)
            except ModelError as error:
                if named.forms.get(device):  # all of it was planned there
                    raise
                refused[device] = error
                own = [call for call in self._computed() if call.network == named.name]
                if all(_fastest_s(call, device) is not None for call in own):
                    self._events(Note(message=_one_by_one(named.name, device, error)))
                continue
            self._made[named.name, device] = made
            _, whole = made
            for cores in self._counts(device):
                few = source.allowed(on_cores(placement, range(cores)))
                settings = source.settings(checked_settings(named.settings), few)
                self._fewer[named.name, device, cores] = (
                    defaults(whole.tasks, few, max_error)
                    if settings == "default"
                    else best_known(whole.tasks, self._store, few, max_error)
                    if settings == "best"
                    else _taken(whole, few)
                )
        if len(refused) == len(self.placements):
            raise next(iter(refused.values()))
        self._require_planned(named)

    def _require_planned(self, named: PlannedNetwork) -> None:
        """Raise ModelError where a network is not the one that was planned."""
        own = (call for call in self._computed() if call.network == named.name)
        require_planned(named, own, self.network(named.name).fused, self._prefix(named.name))

    def _counts(self, device: str) -> set[int]:
        """The numbers of cores, but for all, that calls of the plan have on a device."""
        slots = self.plan.schedule.slots
        used = {len(s.cores) for s in slots if self._device_of(s.call) == device}
        return used - {self.plan.problem.device[device].cores}

    def _device_of(self, call: str) -> str:
        return self.plan.schedule.mode_of(self.plan.problem, call).device

    @property
    def names(self) -> tuple[str, ...]:
        """What the networks are called."""
        return tuple(each.name for each in self.plan.networks)

    def network(self, name: str) -> PreparedNetwork:
        """A network as it was planned, on one of the devices that compute all of it: inputs,
        outputs and tensors are the same on all."""
        made = (self._made.get((name, device)) for device in self.placements)
        return with_fewest_calls(each[0] for each in made if each is not None)

    def way(self, schedule: Schedule) -> Way:
        """As a schedule of the plan's problem says."""
        return self._scheduled(self.plan.problem, schedule)

    def _scheduled(self, problem: SchedulingProblem, schedule: Schedule) -> Way:
        place = {
            slot.call: self._place(schedule.mode_of(problem, slot.call).device, slot.cores)
            for slot in schedule.slots
        }
        begin_s = {slot.call: slot.begin_s for slot in schedule.slots}
        return self._compiled(
            {name: self._ordered(name, schedule, place) for name in self.names}, begin_s
        )

    def alone(self, device: str) -> Way:
        """All calls one after the other on all cores of a device, and those that the plan merges
        apart, where the device computes all of the network so."""
        place = self._place(device, range(self.plan.problem.device[device].cores))
        orders = dict[str, Sequence[tuple[str, Place]]]()
        apart = dict[str, _Made]()
        for named in self.plan.networks:
            calls = [call for call, _ in self._ordered(named.name)]
            with suppress(ModelError):
                if named.merges:
                    made = apart[named.name] = self._apart(named, device)
                    own = {call.name for call in made[0].fused.calls}
                    split = {stacked_name(group): group for group in named.merges}
                    calls = [each for c in calls for each in split.get(c, (c,)) if each in own]
            orders[named.name] = [(call, place) for call in calls]
        return self._compiled(orders, {}, apart)

    def _apart(self, named: PlannedNetwork, device: str) -> _Made:
        """A network on a device with all calls apart. Raises as `opened`."""
        source = merging(self._sources[named.name], ())
        alone = replace(named, merges=(), forms={})
        return opened(alone, source, device, self.placements[device], self._store)

    def fastest_alone(self, without: Collection[str] = ()) -> str | None:
        """The device that is predicted to compute all calls one after the other fastest; None where
        none can compute all."""
        totals: dict[str, float] = {}
        for device in self.placements:
            each = [_fastest_s(call, device) for call in self._computed()]
            known = [seconds for seconds in each if seconds is not None]
            if len(known) == len(each) and device not in without:
                totals[device] = sum(known)
        return min(totals, key=totals.__getitem__, default=None)

    def left(self, lost: Collection[str], slower: Mapping[str, float]) -> Way:
        """Planned again without the devices that are lost, where others take so many times as
        long. Raises TargetError where what is left computes not all calls."""
        calls = tuple(self._left(call, lost, slower) for call in self.plan.problem.calls)
        problem = replace(self.plan.problem, calls=calls, limits=NO_LIMITS)
        return self._scheduled(problem, schedule_with(_REPLANNER, problem))

    def _left(
        self, call: ScheduledCall, lost: Collection[str], slower: Mapping[str, float]
    ) -> ScheduledCall:
        if not computes(call):
            return call
        modes = tuple(
            _times_as_long(mode, slower.get(mode.device, 1.0))
            for mode in call.modes
            if mode.device in self.placements and mode.device not in lost
        )
        if not modes:
            raise TargetError(f"no device that is left computes the call {call.name!r}")
        return replace(call, modes=modes)

    def _computed(self) -> Iterator[ScheduledCall]:
        """The calls of the problem that compute something: not what only has inputs or outputs."""
        return (call for call in self.plan.problem.calls if computes(call))

    def _place(self, device: str, cores: Sequence[int]) -> Place:
        """Where calls on these cores of a device run: a session on a device elsewhere has all of
        its cores."""
        here = in_this_process(self.placements[device]) if device in self.placements else True
        every = range(self.plan.problem.device[device].cores)
        return device, tuple(cores if here else every)

    def _prefix(self, name: str) -> str:
        """What the names of a network's calls begin with in the problem."""
        return f"{name}/" if len(self.plan.networks) > 1 else ""

    def _ordered(
        self,
        name: str,
        schedule: Schedule | None = None,
        place: Mapping[str, Place] | None = None,
    ) -> list[tuple[str, Place]]:
        """The calls of a network by their own names, as they begin, and where each runs."""
        schedule = schedule or self.plan.schedule
        prefix = self._prefix(name)
        number = self.plan.problem.numbers
        own = [c for c in self._computed() if c.network == name]
        own.sort(key=lambda c: (schedule.slot[c.name].begin_s, number[c.name]))
        return [
            (call.name.removeprefix(prefix), (place or {}).get(call.name, ("", ()))) for call in own
        ]

    def _compiled(
        self,
        orders: Mapping[str, Sequence[tuple[str, Place]]],
        begin_s: Mapping[str, float],
        apart: Mapping[str, _Made] | None = None,
    ) -> Way:
        """What is compiled of the networks, of those that are `apart` with their calls so."""
        apart = apart or {}
        found, waiting = dict[str, tuple[CompiledPart, ...]](), dict[str, list[ToCompile]]()
        for name, order in orders.items():
            whole = apart[name][0] if name in apart else self.network(name)
            parts = cut(whole.fused, order)
            made = list[CompiledPart]()
            for part in parts:
                made_of = apart.get(name, self._made.get((name, part.place[0])))
                plan = self._planned(name, part, made_of)
                folder = self._folder / f"part-{next(self._numbers)}"
                constants: Mapping[str, Array] = part.network.graph.constants
                waiting.setdefault(part.place[0], []).append(
                    ToCompile(plan=plan, constants=constants, folder=folder)
                )
                begins = (begin_s.get(self._prefix(name) + call, inf) for call in part.calls)
                first_s = min(begins)
                described = self._described(name, part, plan, folder)
                made.append(replace(described, begin_s=first_s if first_s < inf else 0.0))
            found[name] = tuple(made)
        for device, each in waiting.items():
            self._events(Stage(name="compile", detail=f"{len(each)} parts for {device}"))
            self.compile(self.placements[device], each)
        return Way(parts=found)

    def compile(self, placement: Placement, parts: Sequence[ToCompile]) -> None:
        """Compile parts for a device. Raises as `compile_all`."""
        with open_networks(placement) as runner:
            compile_all([runner], parts)

    def _described(self, name: str, part: Part, plan: NetworkPlan, folder: Path) -> CompiledPart:
        problem, prefix = self.plan.problem, self._prefix(name)
        device, cores = part.place
        merged = self._merged(name)
        planned = dict.fromkeys(merged.get(call, call) for call in part.calls)
        numbers = (problem.numbers.get(prefix + call) for call in planned)
        modes = [
            [m for m in problem.calls[n].modes if m.device == device]
            for n in numbers
            if n is not None
        ]
        return CompiledPart(
            name=part.name if len(self.names) == 1 else f"{name}: {part.name}",
            network=name,
            place=part.place,
            inputs=plan.inputs,
            outputs=plan.outputs,
            folder=folder,
            constants=tuple(plan.constant_names),
            after=part.after,
            calls=part.calls,
            expected_s=sum(
                min(each, key=lambda m: abs(m.cores - len(cores))).latency_s for each in modes
            ),
        )

    def _merged(self, name: str) -> dict[str, str]:
        """Which call the plan has instead of each that it merges."""
        (named,) = (each for each in self.plan.networks if each.name == name)
        return {each: stacked_name(group) for group in named.merges for each in group}

    def _planned(self, name: str, part: Part, made: _Made | None) -> NetworkPlan:
        """A part with the kernels that the network has on its device and so many cores; those in
        plain form, each by itself, on a device that does not compute all of the network."""
        device, cores = part.place
        placement = self._sources[name].allowed(on_cores(self.placements[device], cores))
        forms: dict[str, Form] = {}
        known: dict[str, Candidate] = {}
        chosen: dict[TaskKey, Candidate] = {}
        full = has_all(self.placements[device], cores)
        if made is not None:
            prepared, whole = made
            forms = {**prepared.forms, **{t: each.form for t, each in whole.tensors.items()}}
            known = {call.name: call.candidate for call in whole.calls}
            chosen |= whole.candidates if full else self._fewer.get((name, device, len(cores)), {})
        network, inside = _plain_at_ends(part.network, forms)
        wanted = {
            call.name: known[call.name].forms[:-1]
            if call.name in known
            else tuple(inside.get(t, PLAIN) for t in call.inputs)
            for call in network.calls
            if call.name in known or call.kind != "conversion"
        }
        ports = {t: form for t, form in inside.items() if t not in network.graph.inputs}
        arranged = arrange(network, ports, wanted)
        usual = default_settings(placement, self._max_errors[name])
        for key, task in arranged.tasks.items():
            if key not in chosen:
                chosen[key] = usual(task.workload, task.forms)
        plan = in_sequence(arranged, lane_of(placement), chosen)
        alike = {
            call.name
            for call in plan.calls
            if call.name in known and known[call.name].forms == call.candidate.forms
        }
        versions = dict(self._chosen_kernels(name, part.place))
        own = {call: known[call] for call in alike if full}
        planned = {call: versions[call] for call in alike & versions.keys()}
        return with_planned_kernels(with_each(plan, own), planned, placement)

    def _chosen_kernels(self, name: str, place: Place) -> Iterator[tuple[str, PlannedKernel]]:
        """The kernels that the plan chose for calls of a network on as many cores of a device."""
        device, cores = place
        (named,) = (each for each in self.plan.networks if each.name == name)
        for call, kernel in named.kernels.items():
            mode = self.plan.schedule.mode_of(self.plan.problem, self._prefix(name) + call)
            if (mode.device, mode.cores) == (device, len(cores)):
                yield call, kernel


def _one_by_one(network: str, device: str, error: ModelError) -> str:
    return f"{device!r} computes calls of {network!r} each by itself: {first_line(error)}"


def _taken(plan: NetworkPlan, placement: Placement) -> dict[TaskKey, Candidate]:
    """The kernels of a plan that a device with fewer cores takes, too, by their tasks."""
    target, resources = placement.target, placement.resources
    return {
        key: candidate
        for key, candidate in plan.candidates.items()
        if not any(refusals(plan.tasks[key].workload, [candidate], target, resources))
    }


def _times_as_long(mode: Mode, factor: float) -> Mode:
    return replace(
        mode,
        latency_s=mode.latency_s * factor,
        low_s=mode.low_s * factor,
        high_s=mode.high_s * factor,
    )


def _fastest_s(call: ScheduledCall, device: str) -> float | None:
    modes = [mode for mode in call.modes if mode.device == device]
    return max(modes, key=lambda mode: mode.cores).latency_s if modes else None


def _plain_at_ends(
    network: FusedNetwork, forms: Mapping[str, Form]
) -> tuple[FusedNetwork, dict[str, Form]]:
    """A part whose outputs are copied into plain form where they are computed in another, and the
    forms of all its tensors; inputs keep those in which they are read."""
    graph, types, inside = network.graph, dict(network.graph.types), dict(forms)
    renamed, copies = dict[str, str](), list[TaskCall]()
    for tensor in graph.outputs:
        form = forms.get(tensor, PLAIN)
        inside[tensor] = PLAIN
        if same_memory(graph.types[tensor], form, PLAIN):
            continue
        own = renamed[tensor] = fresh_name(f"{tensor}@{form}", types)
        types[own], inside[own] = types[tensor], form
        copies.append(
            TaskCall(
                name=own,
                workload=copying(types[tensor]),
                inputs=(own,),
                output=tensor,
                kind="conversion",
            )
        )
    calls = [
        replace(
            call,
            inputs=tuple(renamed.get(t, t) for t in call.inputs),
            output=renamed.get(call.output, call.output),
        )
        for call in network.calls
    ]
    return FusedNetwork(graph=replace(graph, types=types), calls=(*calls, *copies)), inside
